//! The C interface against its headers, and PUT over cards of libfabric's.

mod headers;
mod port;
mod put;
