//! Skipping: reading over a value, strictly, without making nodes of it.

use smallvec::SmallVec;

use crate::parse::{Context, Place};
use crate::scan::{Reading, Refused};
use crate::token::{key_end, literal, number_end, skip_space};

/// Words of bits for open containers before the heap is needed: 512 levels, the default limit.
const OPEN_WORDS: usize = 8;

/// Reads over the value at a place, space before it allowed. Returns the place after it.
#[inline(never)]
pub(crate) fn skip_value(context: &mut Context<'_>, place: Place) -> Result<Place, Refused> {
    let text = context.text;
    let Place { mut at, depth_left, mut reading, cursor } = place;
    // A bit per open container, set for objects.
    let mut open: SmallVec<[u64; OPEN_WORDS]> = SmallVec::new();
    let mut depth = 0usize;
    let mut in_object = false;
    'next: loop {
        if in_object {
            at = skip_string(context, &mut reading, at)?;
            at = key_end(text, at - 1)?;
        }
        at = skip_space(text.bytes(), at);
        match text.byte(at) {
            b'"' => at = skip_string(context, &mut reading, at)?,
            b'-' | b'0'..=b'9' => at = number_end(text.bytes(), at)?.0,
            b't' | b'f' | b'n' => at = literal(text.bytes(), at)?.1,
            first @ (b'{' | b'[') => {
                if depth as u64 >= u64::from(depth_left) {
                    return Err(Refused);
                }
                at = skip_space(text.bytes(), at + 1);
                // `]` and `}` stand two after `[` and `{` in ASCII.
                if text.byte(at) == first + 2 {
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
                return Ok(Place { at, depth_left, reading, cursor });
            }
            at = skip_space(text.bytes(), at);
            let after = text.byte(at);
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
    context: &mut Context<'_>,
    reading: &mut Reading,
    at: usize,
) -> Result<usize, Refused> {
    let at = skip_space(context.text.bytes(), at);
    if !context.scanner.string_begins(reading, at)? {
        return Err(Refused);
    }
    Ok(context.scanner.string(reading, at)?.0 + 1)
}
