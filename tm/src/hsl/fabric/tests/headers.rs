//! Structures and constants against `rdma/fabric.h` and its companions, by the C compiler. Where
//! there is none, or no headers (`libfabric-dev`), that is said.

use std::io::Write as _;
use std::mem::offset_of;
use std::process::{Command, Stdio};

use crate::hsl::fabric::abi::*;

/// A field: its structure and name in C, and where it is here.
macro_rules! fields {
    ($($c:literal $rust:ident: $($name:ident $(= $field:ident)?),*;)*) => {
        [$($(($c, stringify!($name), fields!(@at $rust $name $($field)?))),*),*]
    };
    (@at $rust:ident $name:ident) => { offset_of!($rust, $name) };
    (@at $rust:ident $name:ident $field:ident) => { offset_of!($rust, $field) };
}

/// A constant: its name in C is the same.
macro_rules! constants {
    ($($name:ident),*) => {
        [$((stringify!($name), i128::from($name))),*]
    };
}

fn program() -> String {
    let fields = fields! {
        "fi_tx_attr" TxAttr: caps, mode, op_flags, msg_order, comp_order, inject_size, size;
        "fi_rx_attr" RxAttr: caps, mode, op_flags, msg_order, comp_order, total_buffered_recv, size;
        "fi_ep_attr" EndpointAttr: r#type = kind, protocol, protocol_version, max_msg_size, msg_prefix_size, max_order_raw_size, max_order_war_size, max_order_waw_size;
        "fi_domain_attr" DomainAttr: domain, name, threading, control_progress, data_progress, resource_mgmt, av_type, mr_mode, mr_key_size, cq_data_size;
        "fi_fabric_attr" FabricAttr: fabric, name, prov_name, prov_version, api_version;
        "fi_info" Info: next, caps, mode, addr_format, src_addrlen, dest_addrlen, src_addr, dest_addr, handle, tx_attr, rx_attr, ep_attr, domain_attr, fabric_attr;
        "fid" Fid: fclass = class, context, ops;
        "fi_ops" Ops: size, close, bind, control;
        "fid_fabric" FabricObject: fid, ops;
        "fi_ops_fabric" FabricOps: size, domain, passive_ep, eq_open, wait_open, trywait;
        "fid_domain" DomainObject: fid, ops, mr;
        "fi_ops_domain" DomainOps: size, av_open, cq_open, endpoint;
        "fi_ops_mr" MrOps: size, reg;
        "fid_mr" MrObject: fid, mem_desc, key;
        "fi_av_attr" AvAttr: r#type = kind, rx_ctx_bits, count, ep_per_node, name, map_addr, flags;
        "fid_av" AvObject: fid, ops;
        "fi_ops_av" AvOps: size, insert;
        "fi_cq_attr" CqAttr: size, flags, format, wait_obj, signaling_vector, wait_cond, wait_set;
        "fid_cq" CqObject: fid, ops;
        "fi_ops_cq" CqOps: size, read, readfrom, readerr;
        "fi_cq_data_entry" CqEntry: op_context, flags, len, buf, data;
        "fi_cq_err_entry" CqError: op_context, flags, len, buf, data, tag, olen, err, prov_errno, err_data, err_data_size;
        "fid_ep" EndpointObject: fid, ops, cm, msg, rma;
        "fi_ops_cm" CmOps: size, setname, getname;
        "fi_ops_msg" MsgOps: size, recv;
        "fi_msg_rma" RmaMessage: msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, context, data;
        "fi_rma_iov" RmaIov: addr, len, key;
        "fi_ops_rma" RmaOps: size, read, readv, readmsg, write, writev, writemsg, inject, writedata, injectdata;
    };
    let constants = constants!(
        FI_MSG,
        FI_RMA,
        FI_WRITE,
        FI_RECV,
        FI_TRANSMIT,
        FI_REMOTE_WRITE,
        FI_REMOTE_CQ_DATA,
        FI_COMPLETION,
        FI_DELIVERY_COMPLETE,
        FI_SOURCE,
        FI_CONTEXT,
        FI_RX_CQ_DATA,
        FI_CONTEXT2,
        FI_MR_LOCAL,
        FI_MR_VIRT_ADDR,
        FI_MR_ALLOCATED,
        FI_MR_PROV_KEY,
        FI_ORDER_WAW,
        FI_ORDER_RMA_WAW,
        FI_EP_RDM,
        FI_THREAD_SAFE,
        FI_PROGRESS_AUTO,
        FI_RM_ENABLED,
        FI_AV_TABLE,
        FI_CQ_FORMAT_DATA,
        FI_WAIT_NONE,
        FI_WAIT_FD,
        FI_GETWAIT,
        FI_ENABLE,
        FI_SOCKADDR,
        FI_SOCKADDR_IN,
        FI_SOCKADDR_IN6,
        FI_EAGAIN,
        FI_ENOSYS,
        FI_ENODATA,
        FI_EAVAIL,
        FI_ADDR_UNSPEC
    );
    let mut text = String::from(
        "#include <stddef.h>\n#include <rdma/fabric.h>\n#include <rdma/fi_cm.h>\n\
         #include <rdma/fi_domain.h>\n#include <rdma/fi_endpoint.h>\n#include <rdma/fi_eq.h>\n\
         #include <rdma/fi_errno.h>\n#include <rdma/fi_rma.h>\n",
    );
    for (structure, field, offset) in fields {
        let field = field.trim_start_matches("r#");
        text += &format!(
            "_Static_assert(offsetof(struct {structure}, {field}) == {offset}, \
             \"{structure}.{field}\");\n"
        );
    }
    for (name, value) in constants {
        text += &format!("_Static_assert({name} == {value}ULL, \"{name}\");\n");
    }
    for (structure, bytes) in [
        ("fi_cq_data_entry", size_of::<CqEntry>()),
        ("fi_cq_err_entry", size_of::<CqError>()),
        ("fi_context2", size_of::<Context>()),
        ("fi_av_attr", size_of::<AvAttr>()),
        ("fi_cq_attr", size_of::<CqAttr>()),
        ("fi_msg_rma", size_of::<RmaMessage>()),
        ("fi_rma_iov", size_of::<RmaIov>()),
    ] {
        text +=
            &format!("_Static_assert(sizeof(struct {structure}) == {bytes}, \"{structure}\");\n");
    }
    text
}

fn compiler() -> Command {
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler.args(["-fsyntax-only", "-x", "c", "-"]);
    compiler
}

/// Whether the compiler takes `text`, and what it says.
fn compiles(text: &str) -> Option<(bool, String)> {
    let mut child = compiler()
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    child.stdin.take()?.write_all(text.as_bytes()).ok()?;
    let output = child.wait_with_output().ok()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Some((output.status.success(), said))
}

#[test]
fn structures_are_those_of_the_headers() {
    let headers = compiles("#include <rdma/fabric.h>\n");
    if !headers.is_some_and(|(are_there, _)| are_there) {
        assert!(
            std::env::var_os("CI").is_none(),
            "no C compiler with rdma/fabric.h (package libfabric-dev)"
        );
        let _ = writeln!(
            std::io::stderr(),
            "skipped: no C compiler with rdma/fabric.h (package libfabric-dev)"
        );
        return;
    }
    let (is_right, said) = compiles(&program()).unwrap();
    assert!(is_right, "{said}");
    // It does find what is wrong.
    let wrong = program().replace("offsetof(struct fi_info, caps) == 8", "1 == 2");
    assert!(compiles(&wrong).is_some_and(|(is_right, _)| !is_right));
}
