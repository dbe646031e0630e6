//! The C interface of libfabric, as far as it is used here: API version 1.17 (`rdma/fabric.h` and
//! its companions), symbols as of `FABRIC_1.3`.
//!
//! Structures that grow with the version are only ever made by the library itself (`fi_dupinfo`),
//! and grow at their ends. Tables of functions begin with their size, which is checked before one
//! is used. What is not called is a plain pointer, and what is may be missing. Unsafe island only for
//! the types of these functions: nothing is called here.

use std::ffi::{c_char, c_int, c_void};

/// The version that is asked for: `FI_VERSION(1, 17)`.
pub(super) const VERSION: u32 = 1 << 16 | 17;

// `fi_info.caps`, and flags of operations and completions.
pub(super) const FI_MSG: u64 = 1 << 1;
pub(super) const FI_RMA: u64 = 1 << 2;
pub(super) const FI_WRITE: u64 = 1 << 9;
pub(super) const FI_RECV: u64 = 1 << 10;
pub(super) const FI_TRANSMIT: u64 = 1 << 11;
pub(super) const FI_REMOTE_WRITE: u64 = 1 << 13;
pub(super) const FI_REMOTE_CQ_DATA: u64 = 1 << 17;
pub(super) const FI_COMPLETION: u64 = 1 << 24;
pub(super) const FI_DELIVERY_COMPLETE: u64 = 1 << 28;
pub(super) const FI_SOURCE: u64 = 1 << 57;

// `fi_info.mode`: what the caller is ready to do.
pub(super) const FI_CONTEXT: u64 = 1 << 59;
pub(super) const FI_RX_CQ_DATA: u64 = 1 << 56;
pub(super) const FI_CONTEXT2: u64 = 1 << 52;

// `fi_domain_attr.mr_mode`.
pub(super) const FI_MR_LOCAL: c_int = 1 << 2;
pub(super) const FI_MR_VIRT_ADDR: c_int = 1 << 4;
pub(super) const FI_MR_ALLOCATED: c_int = 1 << 5;
pub(super) const FI_MR_PROV_KEY: c_int = 1 << 6;

/// Writes are seen in the order in which they were asked for.
pub(super) const FI_ORDER_WAW: u64 = 1 << 4;
pub(super) const FI_ORDER_RMA_WAW: u64 = 1 << 35;

// Values of enumerations.
pub(super) const FI_EP_RDM: c_int = 3;
pub(super) const FI_THREAD_SAFE: c_int = 1;
pub(super) const FI_PROGRESS_AUTO: c_int = 1;
pub(super) const FI_RM_ENABLED: c_int = 2;
pub(super) const FI_AV_TABLE: c_int = 2;
pub(super) const FI_CQ_FORMAT_DATA: c_int = 3;
pub(super) const FI_WAIT_NONE: c_int = 0;
pub(super) const FI_WAIT_FD: c_int = 3;
pub(super) const FI_GETWAIT: c_int = 5;
pub(super) const FI_ENABLE: c_int = 6;
/// `fi_info.addr_format`: a socket address of any family, IPv4, IPv6.
pub(super) const FI_SOCKADDR: u32 = 1;
pub(super) const FI_SOCKADDR_IN: u32 = 2;
pub(super) const FI_SOCKADDR_IN6: u32 = 3;

// Errors, which functions return negated; those below 256 are the system's.
pub(super) const FI_EAGAIN: i32 = 11;
pub(super) const FI_ENOSYS: i32 = 38;
pub(super) const FI_ENODATA: i32 = 61;
pub(super) const FI_EAVAIL: i32 = 259;

/// `fi_addr_t`.
pub(super) type Address = u64;
pub(super) const FI_ADDR_UNSPEC: Address = u64::MAX;

/// `struct fi_tx_attr`.
#[repr(C)]
pub(super) struct TxAttr {
    pub(super) caps: u64,
    pub(super) mode: u64,
    pub(super) op_flags: u64,
    pub(super) msg_order: u64,
    pub(super) comp_order: u64,
    pub(super) inject_size: usize,
    pub(super) size: usize,
}

/// `struct fi_rx_attr`.
#[repr(C)]
pub(super) struct RxAttr {
    pub(super) caps: u64,
    pub(super) mode: u64,
    pub(super) op_flags: u64,
    pub(super) msg_order: u64,
    pub(super) comp_order: u64,
    pub(super) total_buffered_recv: usize,
    pub(super) size: usize,
}

/// `struct fi_ep_attr`.
#[repr(C)]
pub(super) struct EndpointAttr {
    pub(super) kind: c_int,
    pub(super) protocol: u32,
    pub(super) protocol_version: u32,
    pub(super) max_msg_size: usize,
    pub(super) msg_prefix_size: usize,
    pub(super) max_order_raw_size: usize,
    pub(super) max_order_war_size: usize,
    pub(super) max_order_waw_size: usize,
}

/// `struct fi_domain_attr`.
#[repr(C)]
pub(super) struct DomainAttr {
    pub(super) domain: *mut c_void,
    pub(super) name: *mut c_char,
    pub(super) threading: c_int,
    pub(super) control_progress: c_int,
    pub(super) data_progress: c_int,
    pub(super) resource_mgmt: c_int,
    pub(super) av_type: c_int,
    pub(super) mr_mode: c_int,
    pub(super) mr_key_size: usize,
    pub(super) cq_data_size: usize,
}

/// `struct fi_fabric_attr`.
#[repr(C)]
pub(super) struct FabricAttr {
    pub(super) fabric: *mut c_void,
    pub(super) name: *mut c_char,
    pub(super) prov_name: *mut c_char,
    pub(super) prov_version: u32,
    pub(super) api_version: u32,
}

/// `struct fi_info`.
#[repr(C)]
pub(super) struct Info {
    pub(super) next: *mut Info,
    pub(super) caps: u64,
    pub(super) mode: u64,
    pub(super) addr_format: u32,
    pub(super) src_addrlen: usize,
    pub(super) dest_addrlen: usize,
    pub(super) src_addr: *mut c_void,
    pub(super) dest_addr: *mut c_void,
    pub(super) handle: *mut c_void,
    pub(super) tx_attr: *mut TxAttr,
    pub(super) rx_attr: *mut RxAttr,
    pub(super) ep_attr: *mut EndpointAttr,
    pub(super) domain_attr: *mut DomainAttr,
    pub(super) fabric_attr: *mut FabricAttr,
}

/// `struct fid`: what every object begins with.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Fid {
    pub(super) class: usize,
    pub(super) context: *mut c_void,
    pub(super) ops: *const Ops,
}

/// `struct fi_ops`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Ops {
    pub(super) size: usize,
    pub(super) close: Option<unsafe extern "C" fn(*mut Fid) -> c_int>,
    pub(super) bind: Option<unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int>,
    pub(super) control: Option<unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int>,
}

/// `struct fid_fabric`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct FabricObject {
    pub(super) fid: Fid,
    pub(super) ops: *const FabricOps,
}

/// `struct fi_ops_fabric`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct FabricOps {
    pub(super) size: usize,
    pub(super) domain: Option<
        unsafe extern "C" fn(
            *mut FabricObject,
            *mut Info,
            *mut *mut DomainObject,
            *mut c_void,
        ) -> c_int,
    >,
    pub(super) passive_ep: *const c_void,
    pub(super) eq_open: *const c_void,
    pub(super) wait_open: *const c_void,
    pub(super) trywait:
        Option<unsafe extern "C" fn(*mut FabricObject, *mut *mut Fid, c_int) -> c_int>,
}

/// `struct fid_domain`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct DomainObject {
    pub(super) fid: Fid,
    pub(super) ops: *const DomainOps,
    pub(super) mr: *const MrOps,
}

/// `struct fi_ops_domain`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct DomainOps {
    pub(super) size: usize,
    pub(super) av_open: Option<
        unsafe extern "C" fn(
            *mut DomainObject,
            *mut AvAttr,
            *mut *mut AvObject,
            *mut c_void,
        ) -> c_int,
    >,
    pub(super) cq_open: Option<
        unsafe extern "C" fn(
            *mut DomainObject,
            *mut CqAttr,
            *mut *mut CqObject,
            *mut c_void,
        ) -> c_int,
    >,
    pub(super) endpoint: Option<
        unsafe extern "C" fn(
            *mut DomainObject,
            *mut Info,
            *mut *mut EndpointObject,
            *mut c_void,
        ) -> c_int,
    >,
}

/// `struct fi_ops_mr`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct MrOps {
    pub(super) size: usize,
    /// Of a domain: buffer, length, access, offset, requested key, flags.
    pub(super) reg: Option<
        unsafe extern "C" fn(
            *mut Fid,
            *const c_void,
            usize,
            u64,
            u64,
            u64,
            u64,
            *mut *mut MrObject,
            *mut c_void,
        ) -> c_int,
    >,
}

/// `struct fid_mr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct MrObject {
    pub(super) fid: Fid,
    pub(super) mem_desc: *mut c_void,
    pub(super) key: u64,
}

/// `struct fi_av_attr`.
#[repr(C)]
pub(super) struct AvAttr {
    pub(super) kind: c_int,
    pub(super) rx_ctx_bits: c_int,
    pub(super) count: usize,
    pub(super) ep_per_node: usize,
    pub(super) name: *const c_char,
    pub(super) map_addr: *mut c_void,
    pub(super) flags: u64,
}

/// `struct fid_av`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct AvObject {
    pub(super) fid: Fid,
    pub(super) ops: *const AvOps,
}

/// `struct fi_ops_av`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct AvOps {
    pub(super) size: usize,
    pub(super) insert: Option<
        unsafe extern "C" fn(
            *mut AvObject,
            *const c_void,
            usize,
            *mut Address,
            u64,
            *mut c_void,
        ) -> c_int,
    >,
}

/// `struct fi_cq_attr`.
#[repr(C)]
pub(super) struct CqAttr {
    pub(super) size: usize,
    pub(super) flags: u64,
    pub(super) format: c_int,
    pub(super) wait_obj: c_int,
    pub(super) signaling_vector: c_int,
    pub(super) wait_cond: c_int,
    pub(super) wait_set: *mut c_void,
}

/// `struct fid_cq`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CqObject {
    pub(super) fid: Fid,
    pub(super) ops: *const CqOps,
}

/// `struct fi_ops_cq`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CqOps {
    pub(super) size: usize,
    pub(super) read: Option<unsafe extern "C" fn(*mut CqObject, *mut c_void, usize) -> isize>,
    pub(super) readfrom: *const c_void,
    pub(super) readerr: Option<unsafe extern "C" fn(*mut CqObject, *mut CqError, u64) -> isize>,
}

/// `struct fi_cq_data_entry`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CqEntry {
    /// An address, which is only compared.
    pub(super) op_context: usize,
    pub(super) flags: u64,
    pub(super) len: usize,
    pub(super) buf: usize,
    pub(super) data: u64,
}

/// `struct fi_cq_err_entry`.
#[repr(C)]
pub(super) struct CqError {
    pub(super) op_context: *mut c_void,
    pub(super) flags: u64,
    pub(super) len: usize,
    pub(super) buf: *mut c_void,
    pub(super) data: u64,
    pub(super) tag: u64,
    pub(super) olen: usize,
    pub(super) err: c_int,
    pub(super) prov_errno: c_int,
    pub(super) err_data: *mut c_void,
    pub(super) err_data_size: usize,
}

/// `struct fid_ep`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct EndpointObject {
    pub(super) fid: Fid,
    pub(super) ops: *const c_void,
    pub(super) cm: *const CmOps,
    pub(super) msg: *const MsgOps,
    pub(super) rma: *const RmaOps,
}

/// `struct fi_ops_cm`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CmOps {
    pub(super) size: usize,
    pub(super) setname: *const c_void,
    pub(super) getname: Option<unsafe extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int>,
}

/// `struct fi_ops_msg`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct MsgOps {
    pub(super) size: usize,
    /// Buffer, length, its descriptor, source, context.
    pub(super) recv: Option<
        unsafe extern "C" fn(
            *mut EndpointObject,
            *mut c_void,
            usize,
            *mut c_void,
            Address,
            *mut c_void,
        ) -> isize,
    >,
}

/// `struct fi_msg_rma`.
#[repr(C)]
pub(super) struct RmaMessage {
    pub(super) msg_iov: *const libc::iovec,
    pub(super) desc: *mut *mut c_void,
    pub(super) iov_count: usize,
    pub(super) addr: Address,
    pub(super) rma_iov: *const RmaIov,
    pub(super) rma_iov_count: usize,
    pub(super) context: *mut c_void,
    pub(super) data: u64,
}

/// `struct fi_rma_iov`.
#[repr(C)]
pub(super) struct RmaIov {
    pub(super) addr: u64,
    pub(super) len: usize,
    pub(super) key: u64,
}

/// `struct fi_ops_rma`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RmaOps {
    pub(super) size: usize,
    pub(super) read: *const c_void,
    pub(super) readv: *const c_void,
    pub(super) readmsg: *const c_void,
    pub(super) write: *const c_void,
    pub(super) writev: *const c_void,
    pub(super) writemsg:
        Option<unsafe extern "C" fn(*mut EndpointObject, *const RmaMessage, u64) -> isize>,
    /// Buffer, length, destination, remote address, key.
    pub(super) inject: Option<
        unsafe extern "C" fn(*mut EndpointObject, *const c_void, usize, Address, u64, u64) -> isize,
    >,
    pub(super) writedata: *const c_void,
    /// Buffer, length, immediate data, destination, remote address, key.
    pub(super) injectdata: Option<
        unsafe extern "C" fn(
            *mut EndpointObject,
            *const c_void,
            usize,
            u64,
            Address,
            u64,
            u64,
        ) -> isize,
    >,
}

/// `struct fi_context2`: room that a provider may use while an operation goes on.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub(super) struct Context(pub(super) [u64; 8]);
