//! A vector that grows by whole chunks, so that growing never copies what is there: with ten million objects a
//! doubling `Vec` would stall a measured interval for tens of milliseconds, and hold up to twice the memory.

use std::ops::{Index, IndexMut};

/// Elements in chunks of `N`, a power of two.
pub(crate) struct Chunks<T, const N: usize> {
    chunks: Vec<Box<[T; N]>>,
    len: usize,
}

impl<T, const N: usize> Default for Chunks<T, N> {
    fn default() -> Self {
        const { assert!(N.is_power_of_two()) };
        Self { chunks: Vec::new(), len: 0 }
    }
}

impl<T: Clone + Default, const N: usize> Chunks<T, N> {
    /// Adds an element at the end.
    pub fn push(&mut self, element: T) {
        let (chunk, offset) = (self.len / N, self.len % N);
        if chunk == self.chunks.len() {
            // By way of the heap: the array may be larger than the stack.
            let elements = vec![T::default(); N].into_boxed_slice();
            let Ok(elements) = elements.try_into() else { unreachable!("made of N elements") };
            self.chunks.push(elements);
        }
        self.chunks[chunk][offset] = element;
        self.len += 1;
    }
}

impl<T, const N: usize> Chunks<T, N> {
    /// Elements there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Heap memory held, in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.chunks.len() * N * size_of::<T>() + self.chunks.capacity() * size_of::<Box<[T; N]>>()
    }
}

impl<T, const N: usize> Index<usize> for Chunks<T, N> {
    type Output = T;

    #[inline]
    fn index(&self, index: usize) -> &T {
        &self.chunks[index / N][index % N]
    }
}

impl<T, const N: usize> IndexMut<usize> for Chunks<T, N> {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut T {
        &mut self.chunks[index / N][index % N]
    }
}
