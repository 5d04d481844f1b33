//! Limits of the depth of texts and of linked values.

/// Default of the depth limit of [`Document::parse`](crate::Document::parse). Real responses nest
/// some 20 levels deep; 512 is the limit of other parsers and the one that the JSON test suite
/// probes.
pub const DEPTH_LIMIT_DEFAULT: u32 = 512;

/// Depth to which merging and printing follow values that were linked together. Parsing has its
/// own, lower limit; this one also ends walks over values that contain themselves.
pub const WALK_DEPTH_MAX: usize = 4096;
