//! Numbers as hexadecimal digits of a fixed length, without the formatting of the standard library: ids are printed
//! several times for each request.

/// The last `N` hexadecimal digits of a number, in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HexDigits<const N: usize>([u8; N]);

impl<const N: usize> HexDigits<N> {
    /// Formats a number.
    // hot path: once per id.
    pub fn new(mut number: u128) -> Self {
        let mut digits = [b'0'; N];
        for digit in digits.iter_mut().rev() {
            *digit = b"0123456789abcdef"[(number & 0xf) as usize];
            number >>= 4;
        }
        Self(digits)
    }

    /// Returns the digits.
    pub fn as_str(&self) -> &str {
        // Digits are ASCII, so there always is a text.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_standard_library() {
        for number in [0, 1, 0xaf, u128::from(u64::MAX), u128::MAX, 0x0123_4567_89ab_cdef << 60] {
            assert_eq!(HexDigits::<32>::new(number).as_str(), format!("{number:032x}"));
        }
        assert_eq!(HexDigits::<2>::new(0x1f0).as_str(), "f0");
    }
}
