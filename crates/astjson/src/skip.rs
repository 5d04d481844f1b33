//! Skips a value: reads it strictly, without making nodes of it.

use smallvec::SmallVec;

use crate::scan::{Job, Refused, Scan};
use crate::token::{byte, literal, number_end, skip_colon, skip_space, string};

/// Words of bits for open containers that are kept off the heap: 512 levels, the default limit.
const OPEN_WORDS: usize = 8;

/// Skips the value at a position, leading space allowed. Returns the position after it.
pub(crate) struct Skip<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) at: u32,
    pub(crate) depth_left: u32,
}

impl Job for Skip<'_> {
    type Output = Result<u32, Refused>;

    #[inline(always)]
    fn run<S: Scan>(self, scan: S) -> Result<u32, Refused> {
        let Skip { text, mut at, depth_left } = self;
        // One bit for each open container, set for objects.
        let mut open: SmallVec<[u64; OPEN_WORDS]> = SmallVec::new();
        let mut depth = 0usize;
        let mut in_object = false;
        'next: loop {
            if in_object {
                at = skip_space(text, at);
                if byte(text, at) != b'"' {
                    return Err(Refused);
                }
                at = skip_colon(text, string(scan, text, at)?.0 + 1)?;
            }
            if byte(text, at) <= b' ' {
                at = skip_space(text, at);
            }
            match byte(text, at) {
                b'"' => at = string(scan, text, at)?.0 + 1,
                b'-' | b'0'..=b'9' => at = number_end(text, at)?.0,
                first @ (b'{' | b'[') => {
                    if depth as u64 >= u64::from(depth_left) {
                        return Err(Refused);
                    }
                    at = skip_space(text, at + 1);
                    // In ASCII, `]` and `}` are two above `[` and `{`.
                    if byte(text, at) == first + 2 {
                        at += 1;
                    } else {
                        in_object = first == b'{';
                        let (word, bit) = (depth / 64, depth % 64);
                        if word == open.len() {
                            open.push(0);
                        }
                        open[word] = open[word] & !(1 << bit) | u64::from(in_object) << bit;
                        depth += 1;
                        continue 'next;
                    }
                }
                _ => at = literal(text, at)?.1,
            }
            loop {
                if depth == 0 {
                    return Ok(at);
                }
                if byte(text, at) <= b' ' {
                    at = skip_space(text, at);
                }
                let after = byte(text, at);
                at += 1;
                if after == b',' {
                    continue 'next;
                }
                if after != if in_object { b'}' } else { b']' } {
                    return Err(Refused);
                }
                depth -= 1;
                in_object = depth > 0 && open[(depth - 1) / 64] >> ((depth - 1) % 64) & 1 == 1;
            }
        }
    }
}
