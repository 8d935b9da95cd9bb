//! One knob for threads: an argument, else `DPTEXT_THREADS`, else the machine's cores, shared by all that run at once.

use std::collections::HashMap;
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::errors::{Error, Result};

/// How many pieces of work the process does side by side and has said so; each of them takes its share of the threads.
static SHARING: AtomicUsize = AtomicUsize::new(0);

pub fn count(asked: Option<usize>) -> Result<usize> {
    if let Some(threads) = asked {
        return positive(threads);
    }
    let all = match std::env::var("DPTEXT_THREADS") {
        Ok(text) => text.trim().parse().map_err(|_| wrong()).and_then(positive)?,
        Err(_) => thread::available_parallelism().map_or(1, std::num::NonZero::get),
    };
    Ok(share(all, SHARING.load(Ordering::Relaxed)))
}

/// Says that one more piece of work runs next to others, until `end_sharing`.
pub fn begin_sharing() {
    SHARING.fetch_add(1, Ordering::Relaxed);
}

/// Says that a piece of work has ended; saying it too often changes nothing.
pub fn end_sharing() {
    let _ = SHARING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |pieces| pieces.checked_sub(1));
}

/// The threads of one piece of work among a number of them.
fn share(all: usize, pieces: usize) -> usize {
    (all / pieces.max(1)).max(1)
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
    work: impl Fn(Range<usize>) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    if threads == 1 || rows <= rows_at_once {
        return Ok(vec![work(0..rows)?]);
    }
    let mut all = Vec::with_capacity(rows.div_ceil(rows_at_once.max(1)));
    in_order(rows, rows_at_once, threads, work, |part| all.push(part))?;
    Ok(all)
}

/// `work` over consecutive ranges of rows on some threads; `take` gets what came of each in their order, on one thread
/// at a time, while others work on. The first range that fails, in their order, says the error.
///
/// Threads live only for the call: a process that forks afterwards does not inherit threads that are not there. The
/// calling thread is one of them, and where another cannot be started, the others do its work.
pub fn in_order<T: Send>(
    rows: usize,
    rows_at_once: usize,
    threads: usize,
    work: impl Fn(Range<usize>) -> Result<T> + Sync,
    take: impl FnMut(T) + Send,
) -> Result<()> {
    let step = rows_at_once.max(1);
    let units = rows.div_ceil(step);
    let (begun, done) = (AtomicUsize::new(0), Mutex::new(HashMap::new()));
    let taker = Mutex::new(Taker { next: 0, take, failed: None });
    let worker = || loop {
        let unit = begun.fetch_add(1, Ordering::Relaxed);
        if unit >= units {
            break;
        }
        let found = work(unit * step..rows.min((unit + 1) * step));
        if found.is_err() {
            begun.store(units, Ordering::Relaxed); // the units before this one are all begun
        }
        lock(&done).insert(unit, found);
        if let Ok(mut taker) = taker.try_lock() {
            taker.take(&done);
        }
    };
    thread::scope(|scope| {
        let start = |_| thread::Builder::new().spawn_scoped(scope, worker).ok();
        let others = (1..threads.min(units)).map_while(start).collect::<Vec<_>>();
        worker();
        for other in others {
            other.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
    let mut taker = taker.into_inner().unwrap_or_else(PoisonError::into_inner);
    taker.take(&done);
    taker.failed.map_or(Ok(()), Err)
}

/// Takes what was done in the order of the units, up to the first that is not done or failed.
struct Taker<F> {
    next: usize,
    take: F,
    failed: Option<Error>,
}

impl<F> Taker<F> {
    fn take<T>(&mut self, done: &Mutex<HashMap<usize, Result<T>>>)
    where
        F: FnMut(T),
    {
        while self.failed.is_none() {
            let Some(found) = lock(done).remove(&self.next) else { break };
            match found {
                Ok(part) => (self.take)(part),
                Err(error) => self.failed = Some(error),
            }
            self.next += 1;
        }
    }
}

/// What a mutex holds, also after a panic, which continues by itself.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_taken_in_order_however_long_each_takes() {
        for threads in [1, 2, 5] {
            let mut taken = Vec::new();
            let work = |rows: Range<usize>| {
                if rows.start.is_multiple_of(4) {
                    thread::yield_now();
                }
                Ok(rows)
            };
            in_order(103, 2, threads, work, |rows| taken.extend(rows)).unwrap();
            assert_eq!(taken, (0..103).collect::<Vec<_>>());
            assert_eq!(over_rows(103, 2, threads, |rows| Ok(rows.len())).unwrap().iter().sum::<usize>(), 103);
        }
        in_order(0, 8, 3, |_| Ok(()), |()| panic!("there is nothing")).unwrap();
    }

    #[test]
    fn pieces_of_work_share_the_threads() {
        for (all, pieces, each) in [(2, 0, 2), (2, 1, 2), (2, 3, 1), (8, 4, 2), (8, 3, 2), (1, 4, 1)] {
            assert_eq!(share(all, pieces), each);
        }
        assert_eq!(count(Some(5)).unwrap(), 5, "who asks for a number gets it");
    }

    #[test]
    fn the_first_failure_in_order_is_told() {
        for _ in 0..50 {
            let mut taken = 0;
            let work = |rows: Range<usize>| match rows.start {
                37 | 38 | 60 => Err(Error::internal(format!("at {}", rows.start))),
                _ => Ok(()),
            };
            let told = in_order(99, 1, 4, work, |()| taken += 1).unwrap_err().to_string();
            assert!(told.contains("at 37"), "{told}");
            assert_eq!(taken, 37);
        }
    }

    #[test]
    #[should_panic(expected = "a defect")]
    fn a_panic_of_any_thread_goes_on() {
        let work = |rows: Range<usize>| if rows.start == 7 { panic!("a defect") } else { Ok(()) };
        let _ = in_order(64, 1, 3, work, |()| ());
    }
}
