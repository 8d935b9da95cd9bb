//! Secrets, the keys that follow from them, and hashes.

pub mod canon;
pub mod digests;
pub mod prf;
pub mod releases;
pub mod secrets;
