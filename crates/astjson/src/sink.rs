//! Buffers that JSON text is appended to.

use bytes::BytesMut;

/// A buffer that JSON text is appended to.
pub trait Sink {
    /// Appends `bytes`. Every piece that is put into a sink is valid UTF-8, and so is the whole.
    fn put(&mut self, bytes: &[u8]);

    /// Appends the first `count` of these bytes, for sinks that can do that faster.
    #[inline(always)]
    fn put_few(&mut self, bytes: [u8; 8], count: usize) {
        self.put(&bytes[..count]);
    }
}

impl Sink for Vec<u8> {
    #[inline(always)]
    fn put(&mut self, bytes: &[u8]) {
        // With a fixed size, bytes are written without a call; overlapping bytes are written twice.
        let start = self.len();
        if let (8..=16, Some(first), Some(last)) =
            (bytes.len(), bytes.first_chunk::<8>(), bytes.last_chunk::<8>())
        {
            self.extend_from_slice(first);
            self.truncate(start + bytes.len() - last.len());
            self.extend_from_slice(last);
        } else if let (4..=7, Some(first), Some(last)) =
            (bytes.len(), bytes.first_chunk::<4>(), bytes.last_chunk::<4>())
        {
            self.extend_from_slice(first);
            self.truncate(start + bytes.len() - last.len());
            self.extend_from_slice(last);
        } else {
            self.extend_from_slice(bytes);
        }
    }

    #[inline(always)]
    fn put_few(&mut self, bytes: [u8; 8], count: usize) {
        // With a fixed size, bytes are written without a call.
        let length = self.len() + count;
        self.extend_from_slice(&bytes);
        self.truncate(length);
    }
}

impl Sink for BytesMut {
    #[inline(always)]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}
