//! The operations that depend on the CPU, and the work that is done with them.

/// The text is not valid JSON. The validating parser finds the reason and the offset.
#[derive(Debug)]
pub(crate) struct Refused;

/// Number of bytes of a key that are compared at once.
pub(crate) const HEAD_BYTES: usize = 32;

/// A key as most texts write it, `"key":`, prepared for comparison.
#[derive(Debug)]
pub(crate) struct KeyHead {
    pub(super) bytes: [u8; HEAD_BYTES],
    /// One bit for every byte that counts.
    pub(super) mask: u32,
    /// Number of bytes that count.
    pub(crate) length: u32,
}

impl KeyHead {
    /// A head that matches no text: this byte does not occur in UTF-8.
    pub(crate) const NONE: KeyHead = KeyHead { bytes: [0xff; HEAD_BYTES], mask: 1, length: 1 };

    /// Creates the head of a key; `printed` is the key with quotes and colon. The head of a key
    /// that is too long matches no text.
    pub(crate) fn new(printed: &[u8]) -> KeyHead {
        let mut bytes = [0; HEAD_BYTES];
        match bytes.get_mut(..printed.len()) {
            Some(head) => {
                head.copy_from_slice(printed);
                let mask = u32::MAX >> (HEAD_BYTES - printed.len());
                KeyHead { bytes, mask, length: printed.len() as u32 }
            }
            None => KeyHead::NONE,
        }
    }
}

/// Number of bytes that are scanned together.
pub(crate) const BLOCK_BYTES: usize = 32;

/// The operations of the parser that depend on the CPU. A value of such a type proves that the CPU
/// has the instructions.
pub(crate) trait Scan: Copy {
    /// Bit mask of the bytes of a block that may end or interrupt a string: quotes, backslashes and
    /// control characters. One bit per byte, the first byte lowest.
    fn stops(self, block: &[u8; BLOCK_BYTES]) -> u32;

    /// [`stops`](Scan::stops) of two blocks.
    #[inline(always)]
    fn stops_wide(self, blocks: &[u8; 2 * BLOCK_BYTES]) -> u64 {
        let [left, right] = blocks.as_chunks().0 else { return 0 };
        u64::from(self.stops(left)) | u64::from(self.stops(right)) << BLOCK_BYTES
    }

    /// True if a text begins with this key.
    fn begins_with(self, text: &[u8; HEAD_BYTES], key: &KeyHead) -> bool;

    /// Position of the first byte from `at` on that may end or interrupt a string: a quote, a
    /// backslash or a control character. The length of the text if there is none.
    #[inline(always)]
    fn string_end(self, text: &[u8], at: u32) -> u32 {
        self.run_end(text, at).unwrap_or_else(|at| string_end_near(text, at))
    }

    /// Like [`string_end`](Scan::string_end), over whole blocks only. `Err` holds the position
    /// after the last whole block.
    #[inline(always)]
    fn run_end(self, text: &[u8], mut at: u32) -> Result<u32, u32> {
        while let Some(two) = chunk::<{ 2 * BLOCK_BYTES }>(text, at) {
            let stops = self.stops_wide(two);
            if stops != 0 {
                return Ok(at + stops.trailing_zeros());
            }
            at += 2 * BLOCK_BYTES as u32;
        }
        Err(at)
    }

    /// Runs a job in a function of its own that is compiled for this CPU.
    fn outline<J: Job>(self, job: J) -> J::Output;
}

/// Work that is done with the instructions of a CPU.
pub(crate) trait Job {
    type Output;
    /// Runs the job. Must always be inlined, because only then it is compiled for the CPU.
    fn run<S: Scan>(self, scan: S) -> Self::Output;
}

/// `N` bytes of the text at `at`; `None` if fewer are left.
#[inline(always)]
pub(crate) fn chunk<const N: usize>(text: &[u8], at: u32) -> Option<&[u8; N]> {
    // One comparison: the compiler knows that these sums do not overflow.
    let at = at as usize;
    text.get(at..at + N)?.try_into().ok()
}

/// [`Scan::string_end`] where few bytes are left.
#[inline(never)]
fn string_end_near(text: &[u8], at: u32) -> u32 {
    let rest = text.get(at as usize..).unwrap_or_default();
    let stops = |byte: &u8| *byte == b'"' || *byte == b'\\' || *byte < b' ';
    at + rest.iter().position(stops).unwrap_or(rest.len()) as u32
}
