//! The memory of a slab: values at fixed addresses, on large pages of the system where most of a page is in use.
//!
//! Between two connections of a broadcast a reactor is in the kernel, which takes the processor's memory of page
//! addresses for itself. On small pages each connection then costs a walk through the page tables, which takes a
//! microsecond in a virtual machine: more than everything else that a reactor does for a message. 6,400 connections
//! share one large page.

use std::alloc::{self, Layout};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// The size of a large page of Linux on x86-64, and on aarch64 with small pages of 4 KiB. With another size the system
/// refuses to join pages, and the chunk stays on small ones.
const LARGE_PAGE_BYTES: usize = 2 << 20;

/// The size of a chunk in bytes of address space. Memory is used from the front, page by page.
const CHUNK_BYTES: usize = 4 * LARGE_PAGE_BYTES;

/// A list of values that do not move, with room for [`Chunk::CAPACITY`].
pub(crate) struct Chunk<T> {
    /// The first place. All `len` places from here on have values.
    start: NonNull<T>,
    len: usize,
}

#[expect(unsafe_code, reason = "the chunk owns its values, as a vector does")]
// SAFETY: nothing else has the pointer, so that a chunk is sent with its values and shares nothing.
unsafe impl<T: Send> Send for Chunk<T> {}

impl<T> Chunk<T> {
    /// The number of places.
    pub(crate) const CAPACITY: usize = CHUNK_BYTES / size_of::<T>();

    /// The address space of a chunk: it begins with a large page.
    const LAYOUT: Layout = match Layout::from_size_align(CHUNK_BYTES, LARGE_PAGE_BYTES) {
        Ok(layout) => layout,
        Err(_) => panic!("a power of two is an alignment"),
    };

    /// Reserves the address space.
    #[expect(unsafe_code, reason = "vectors have no alignment of their own")]
    pub(crate) fn new() -> Self {
        const { assert!(size_of::<T>() > 0 && size_of::<T>() <= CHUNK_BYTES) };
        const { assert!(align_of::<T>() <= LARGE_PAGE_BYTES) };
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc::alloc(Self::LAYOUT) };
        match NonNull::new(memory.cast::<T>()) {
            Some(start) => Self { start, len: 0 },
            None => alloc::handle_alloc_error(Self::LAYOUT),
        }
    }

    /// True if there is no place left.
    pub(crate) fn is_full(&self) -> bool {
        self.len == Self::CAPACITY
    }

    /// Appends a value.
    ///
    /// # Panics
    /// The chunk is full.
    #[expect(unsafe_code, reason = "the place has no value yet")]
    pub(crate) fn push(&mut self, value: T) {
        assert!(!self.is_full(), "a full chunk takes no value");
        // SAFETY: the place is within the memory, because fewer places than the capacity are in use, and aligned,
        // because the memory and each size of a type are. It has no value that would have to be dropped.
        unsafe { self.start.add(self.len).write(value) };
        self.len += 1;
        if let Some(page) = page_with_new_half((self.len - 1) * size_of::<T>(), size_of::<T>()) {
            self.join_small_pages(page);
        }
    }

    /// Asks the system to replace the small pages at `offset` bytes behind the start by a large page. Half of them are
    /// in use. Places are used in order, so a slab takes at most a megabyte more than on small pages.
    #[cfg(all(target_os = "linux", not(miri)))]
    #[expect(unsafe_code, reason = "advice to the system about memory")]
    fn join_small_pages(&self, offset: usize) {
        /// Since Linux 6.1. The C library need not know it.
        const MADV_COLLAPSE: libc::c_int = 25;
        // SAFETY: the page is within the memory of this chunk, which begins with a large page. The system changes
        // neither the contents nor the rights of the memory. A system that does not know the advice, or has no large
        // page, refuses it, and everything stays as it was.
        unsafe {
            let page = self.start.cast::<u8>().add(offset);
            libc::madvise(page.as_ptr().cast(), LARGE_PAGE_BYTES, MADV_COLLAPSE);
        }
    }

    #[cfg(any(not(target_os = "linux"), miri))]
    fn join_small_pages(&self, _offset: usize) {}
}

/// Returns the offset of the large page of which a value is the first one to fill the first half. The value has `size`
/// bytes at `offset`, and is no larger than half a page.
fn page_with_new_half(offset: usize, size: usize) -> Option<usize> {
    let page = offset / LARGE_PAGE_BYTES * LARGE_PAGE_BYTES;
    let middle = page + LARGE_PAGE_BYTES / 2;
    (offset < middle && middle <= offset + size && page + LARGE_PAGE_BYTES <= CHUNK_BYTES)
        .then_some(page)
}

impl<T> Deref for Chunk<T> {
    type Target = [T];

    #[expect(unsafe_code, reason = "a view of the values")]
    fn deref(&self) -> &[T] {
        // SAFETY: the first `len` places have values. They do not change while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Chunk<T> {
    #[expect(unsafe_code, reason = "a view of the values")]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: the first `len` places have values. The exclusive borrow of `self` is the only
        // access to them.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for Chunk<T> {
    #[expect(unsafe_code, reason = "the end of the values and of their memory")]
    fn drop(&mut self) {
        // SAFETY: the values are dropped once, here. The memory was allocated with this layout, and nothing uses it
        // afterwards.
        unsafe {
            std::ptr::drop_in_place(&raw mut **self);
            alloc::dealloc(self.start.as_ptr().cast(), Self::LAYOUT);
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Chunk<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn values_keep_their_places_and_are_dropped_once() {
        let value = Rc::new(());
        let mut chunk = Chunk::new();
        let first = {
            chunk.push((Rc::clone(&value), [0; 1000]));
            &raw const chunk[0]
        };
        while !chunk.is_full() {
            chunk.push((Rc::clone(&value), [7; 1000]));
        }
        assert_eq!(
            (&raw const chunk[0], chunk.len()),
            (first, Chunk::<(Rc<()>, [i32; 1000])>::CAPACITY)
        );
        assert!(chunk[1..].iter().all(|(_, numbers)| *numbers == [7; 1000]));
        chunk[1].1[3] = 8;
        assert_eq!(chunk[1].1[2..5], [7, 8, 7]);
        assert_eq!(Rc::strong_count(&value), chunk.len() + 1);
        drop(chunk);
        assert_eq!(Rc::strong_count(&value), 1);
    }

    #[test]
    fn each_large_page_is_joined_once_when_half_of_it_is_used() {
        for size in [1000, 328, 64 << 10, LARGE_PAGE_BYTES / 2] {
            let offsets = (0..CHUNK_BYTES / size).map(|number| number * size);
            let joined: Vec<usize> =
                offsets.filter_map(|offset| page_with_new_half(offset, size)).collect();
            let pages: Vec<usize> = (0..4).map(|number| number * LARGE_PAGE_BYTES).collect();
            assert_eq!(joined, pages, "{size}");
        }
    }
}
