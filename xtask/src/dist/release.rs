//! A release: what its archives and packages are made of, and where they go.

use std::path::Path;

use super::archive::Compression;
use super::source::Source;

/// The files of one version.
pub(super) struct Release<'a> {
    pub(super) root: &'a Path,
    pub(super) source: &'a Source,
    pub(super) output: &'a Path,
    pub(super) compression: Compression,
}
