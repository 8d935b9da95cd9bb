//! Memory of large results and tables.

/// From here on memory is asked for in large pages, as NumPy does.
#[cfg(target_os = "linux")]
const LARGE: usize = 1 << 22;

/// A vector with room for a number of items. Where there are many, they come in large pages if the system has some: to get
/// a text's memory 4 KiB at a time costs a tenth of writing it, and the threads of a process wait for each other then.
pub fn large_pages<T>(items: usize) -> Vec<T> {
    #[cfg_attr(not(target_os = "linux"), allow(unused_mut))]
    let mut room = Vec::<T>::with_capacity(items);
    #[cfg(target_os = "linux")]
    let bytes = room.capacity() * size_of::<T>();
    #[cfg(target_os = "linux")]
    if bytes >= LARGE {
        let page = rustix::param::page_size();
        let start = room.as_ptr().addr() / page * page;
        // All pages that hold the vector, so that they stay one mapping, which grows without a copy.
        let len = (room.as_ptr().addr() + bytes).next_multiple_of(page) - start;
        let start = room.as_mut_ptr().with_addr(start).cast();
        // SAFETY: the pages are mapped, as each holds bytes of the vector; the advice changes how pages come, not what
        // they hold. Where it is not heard, they come as all others.
        let _ = unsafe { rustix::mm::madvise(start, len, rustix::mm::Advice::LinuxHugepage) };
    }
    room
}

/// Items for which is asked ahead of their use.
pub const AHEAD: usize = 16;

/// Bytes of a line of the processor's cache.
const LINE: usize = 64;

/// Asks for items that will be read soon.
#[inline(always)]
pub fn prefetch<T>(items: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for line in items.chunks((LINE / size_of::<T>().max(1)).max(1)) {
        use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        // SAFETY: every x86-64 processor has the instruction, and no address makes it fail.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = items;
}
