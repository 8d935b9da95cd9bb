//! Panics are defects; they print a location only and leave the kernel as an error without a text.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

use crate::errors::{Error, Result};

static HOOK: Once = Once::new();

/// From now on a panic of the kernel prints where it happened, and nothing else.
pub fn install_hook() {
    HOOK.call_once(|| {
        std::panic::set_hook(Box::new(|panic| match panic.location() {
            Some(at) => eprintln!("dptext_etl kernel: defect at {}:{}", file_name(at.file()), at.line()),
            None => eprintln!("dptext_etl kernel: defect"),
        }));
    });
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Runs `work`; a panic becomes an error without its message.
pub fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(Error::internal("the kernel has a defect; nothing was released")
            .hint("please report the location printed on standard error"))
    })
}
