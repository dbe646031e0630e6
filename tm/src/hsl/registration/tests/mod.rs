//! The books against a model, and the cache over memory that is unmapped, moved and emptied.

mod books;
mod memory;
mod pages;
