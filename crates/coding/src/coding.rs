//! The names of content codings.

/// A content coding: a compression format for bodies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Coding {
    /// zstd (RFC 8878), with windows of at most 8 MiB (RFC 9659).
    #[cfg(feature = "zstd")]
    Zstd,
    /// Brotli (RFC 7932).
    Brotli,
    /// gzip (RFC 1952).
    Gzip,
    /// The zlib format (RFC 1950), as RFC 9110 defines `deflate`, not bare deflate.
    Deflate,
}

impl Coding {
    /// The number of codings of this build.
    const COUNT: usize = if cfg!(feature = "zstd") { 4 } else { 3 };

    /// All codings of this build, in the router's order of preference. Among codings that a client accepts equally, zstd
    /// costs least time for the bytes that it saves (`cargo bench -p coding`).
    pub const ALL: [Self; Self::COUNT] = [
        #[cfg(feature = "zstd")]
        Self::Zstd,
        Self::Brotli,
        Self::Gzip,
        Self::Deflate,
    ];

    /// The names of all codings, as a value of `accept-encoding`.
    pub const ACCEPT: &'static str = match cfg!(feature = "zstd") {
        true => "zstd, br, gzip, deflate",
        false => "br, gzip, deflate",
    };

    /// Returns the name in `content-encoding`.
    pub fn name(self) -> &'static str {
        match self {
            #[cfg(feature = "zstd")]
            Self::Zstd => "zstd",
            Self::Brotli => "br",
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }

    /// Returns the coding with this name, in any letter case; `x-gzip` is the old name of `gzip` (RFC 9110,
    /// section 8.4.1.3).
    pub fn from_name(name: &str) -> Option<Self> {
        let known = Self::ALL.into_iter().find(|it| it.name().eq_ignore_ascii_case(name));
        known.or_else(|| name.eq_ignore_ascii_case("x-gzip").then_some(Self::Gzip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_for_accept_encoding_names_all() {
        assert_eq!(Coding::ALL.map(Coding::name).join(", "), Coding::ACCEPT);
    }
}
