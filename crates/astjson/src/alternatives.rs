//! Looks ahead for the type name of an object, which selects among alternatives of a shape.

use crate::scan::{Job, Refused, Scan};
use crate::shape::{ObjectShape, is_type_key};
use crate::skip::Skip;
use crate::token::{byte, skip_colon, skip_space, string};

/// Looks for the member `__typename` of the object that begins at `at`, and checks the text before
/// it. Returns the alternative that the name selects. `depth_left` is the depth left inside the
/// object.
pub(crate) struct SelectAlternative<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) at: u32,
    pub(crate) depth_left: u32,
    pub(crate) shape: &'a ObjectShape,
}

impl Job for SelectAlternative<'_> {
    type Output = Result<Option<u32>, Refused>;

    #[inline(always)]
    fn run<S: Scan>(self, scan: S) -> Result<Option<u32>, Refused> {
        let SelectAlternative { text, at, depth_left, shape } = self;
        let between = |open: u32, close: u32| {
            text.get(open as usize + 1..close as usize).and_then(|part| str::from_utf8(part).ok())
        };
        let mut at = skip_space(text, at + 1);
        while byte(text, at) != b'}' {
            if byte(text, at) != b'"' {
                return Err(Refused);
            }
            let key = at;
            let (close, escaped) = string(scan, text, at)?;
            at = skip_space(text, skip_colon(text, close + 1)?);
            if is_type_key(between(key, close).ok_or(Refused)?, escaped) {
                if byte(text, at) != b'"' {
                    return Ok(None);
                }
                let (close, escaped) = string(scan, text, at)?;
                return Ok(shape.alternative(between(at, close).ok_or(Refused)?, escaped));
            }
            at = skip_space(text, scan.outline(Skip { text, at, depth_left })?);
            if byte(text, at) != b',' {
                // This is the end of the object, or an error that the parser will meet again.
                return Ok(None);
            }
            at = skip_space(text, at + 1);
        }
        Ok(None)
    }
}
