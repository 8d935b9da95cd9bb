//! One knob for threads: an argument, else `DPTEXT_THREADS`, else the machine's cores.

use rayon::prelude::*;

use crate::errors::{Error, Result};

pub fn count(asked: Option<usize>) -> Result<usize> {
    if let Some(threads) = asked {
        return positive(threads);
    }
    match std::env::var("DPTEXT_THREADS") {
        Ok(text) => text.trim().parse().map_err(|_| wrong()).and_then(positive),
        Err(_) => Ok(std::thread::available_parallelism().map_or(1, std::num::NonZero::get)),
    }
}

fn positive(threads: usize) -> Result<usize> {
    if (1..=1024).contains(&threads) {
        Ok(threads)
    } else {
        Err(wrong())
    }
}

fn wrong() -> Error {
    Error::policy("threads is a whole number from 1 to 1024").hint("set DPTEXT_THREADS=1 for one thread")
}

/// `work` over consecutive ranges of rows, in order; several ranges at a time if `threads` allows.
pub fn over_rows<T: Send>(
    rows: usize,
    rows_at_once: usize,
    threads: usize,
    work: impl Fn(std::ops::Range<usize>) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let step = rows_at_once.max(1);
    if threads == 1 || rows <= step {
        return Ok(vec![work(0..rows)?]);
    }
    let starts = (0..rows).step_by(step).collect::<Vec<_>>();
    let pool = pool(threads.min(starts.len()))?;
    pool.install(|| starts.into_par_iter().map(|start| work(start..rows.min(start + step))).collect())
}

/// `work` on every item; several at a time if `threads` allows.
pub fn each<T: Send>(items: Vec<T>, threads: usize, work: impl Fn(T) + Sync + Send) -> Result<()> {
    if threads == 1 || items.len() < 2 {
        items.into_iter().for_each(work);
        return Ok(());
    }
    pool(threads.min(items.len()))?.install(|| items.into_par_iter().for_each(work));
    Ok(())
}

/// A pool that lives for the call alone: a process that forks afterwards does not inherit threads that are not there.
fn pool(threads: usize) -> Result<rayon::ThreadPool> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.map_err(|_| Error::internal("threads could not be started"))
}
