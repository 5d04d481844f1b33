//! Skipping: reading over a value, strictly, without making nodes of it.

use smallvec::SmallVec;

use crate::scan::{Reading, Refused, Scanner};
use crate::token::{byte, key_end, literal, number_end, skip_space};

/// Words of bits for open containers before the heap is needed: 512 levels, the default limit.
const OPEN_WORDS: usize = 8;

/// Reads over the value at `at`, space before it allowed. Returns the position after it.
#[inline(never)]
pub(crate) fn skip_value(
    text: &[u8],
    mut at: usize,
    depth_left: u32,
    scanner: &mut Scanner<'_>,
    reading: &mut Reading,
) -> Result<usize, Refused> {
    // A bit per open container, set for objects.
    let mut open: SmallVec<[u64; OPEN_WORDS]> = SmallVec::new();
    let mut depth = 0usize;
    let mut in_object = false;
    'next: loop {
        if in_object {
            at = skip_string(text, at, scanner, reading)?;
            at = key_end(text, at - 1)?;
        }
        at = skip_space(text, at);
        match byte(text, at)? {
            b'"' => at = skip_string(text, at, scanner, reading)?,
            b'-' | b'0'..=b'9' => at = number_end(text, at)?.0,
            b't' | b'f' | b'n' => at = literal(text, at)?.1,
            first @ (b'{' | b'[') => {
                if depth as u64 >= u64::from(depth_left) {
                    return Err(Refused);
                }
                at = skip_space(text, at + 1);
                // `]` and `}` stand two after `[` and `{` in ASCII.
                if byte(text, at)? == first + 2 {
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
            _ => return Err(Refused),
        }
        loop {
            if depth == 0 {
                return Ok(at);
            }
            at = skip_space(text, at);
            let after = byte(text, at)?;
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

/// Reads over the string at `at`, space before it allowed.
fn skip_string(
    text: &[u8],
    at: usize,
    scanner: &mut Scanner<'_>,
    reading: &mut Reading,
) -> Result<usize, Refused> {
    let at = skip_space(text, at);
    if !scanner.string_begins(reading, at)? {
        return Err(Refused);
    }
    Ok(scanner.string(reading, at)?.0 + 1)
}
