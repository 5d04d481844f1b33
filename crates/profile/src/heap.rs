//! Who holds memory: jemalloc's sampled allocations that are not freed.
//!
//! The profiler has to be on when the process starts, because every block is marked as sampled or not: the environment
//! says `_RJEM_MALLOC_CONF=prof:true`. jemalloc writes its dump to a file only; it is read, its addresses get names,
//! and the file is removed.

use std::collections::HashMap;
use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use tikv_jemalloc_ctl::{profiling, raw};

use crate::ProfileError;
use crate::encoding::{Encoding, Function, ValueType};
use crate::names::{function, without_allocator};

/// One allocation site of a dump.
#[derive(Debug, PartialEq)]
struct Site {
    /// Return addresses, innermost first.
    stack: Vec<usize>,
    /// Blocks and bytes that were sampled and are not freed.
    blocks: u64,
    bytes: u64,
}

/// One dump at a time: they share the file.
static DUMPING: Mutex<()> = Mutex::new(());

/// Who holds memory now.
///
/// # Errors
/// [`ProfileError::HeapProfilerOff`] where the process was started without the profiler.
pub fn heap() -> Result<Vec<u8>, ProfileError> {
    if !profiling::prof::read().unwrap_or(false) {
        return Err(ProfileError::HeapProfilerOff);
    }
    let text = {
        let _one = DUMPING.lock().unwrap_or_else(PoisonError::into_inner);
        dump()?
    };
    let (rate, sites) = parse(&text)
        .ok_or_else(|| ProfileError::System("the allocator's dump is not understood".to_owned()))?;

    let mut encoding =
        Encoding::new(&[ValueType("inuse_objects", "count"), ValueType("inuse_space", "bytes")]);
    let space = ValueType("space", "bytes");
    encoding.taken(SystemTime::now(), Duration::ZERO, &space, rate);
    let mut names = HashMap::new();
    for site in &sites {
        let (blocks, bytes) = unsampled(site, rate);
        for address in &site.stack {
            names.entry(*address).or_insert_with(|| functions_at(*address));
        }
        let stack = site.stack.iter().map(|address| names[address].as_slice());
        let stack = without_allocator(stack);
        encoding.sample(stack, &[blocks, bytes], None);
    }
    Ok(encoding.finish())
}

/// The allocator's own text, by way of a file that is gone afterwards.
fn dump() -> Result<String, ProfileError> {
    // jemalloc keeps no reference, but its interface asks for text that lives for ever: one, for the whole process.
    static PATH: OnceLock<(PathBuf, &'static [u8])> = OnceLock::new();
    let (path, name) = PATH.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("starling-{}.heap", std::process::id()));
        let mut name = path.as_os_str().as_encoded_bytes().to_vec();
        name.push(0);
        (path, name.leak())
    });
    let failed = |what: &str| ProfileError::System(format!("cannot dump the heap: {what}"));
    raw::write_str(b"prof.dump\0", name).map_err(|error| failed(&error.to_string()))?;
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error.to_string()));
    // A file that stays is overwritten by the next dump.
    let _ = std::fs::remove_file(path);
    text
}

/// Reads a dump of version 2: the mean distance of samples in bytes, and the allocation sites.
///
/// ```text
/// heap_v2/524288
///   t*: 100: 4096 [0: 0]
/// @ 0x1 0x2
///   t*: 1: 512 [0: 0]
/// MAPPED_LIBRARIES: …
/// ```
fn parse(text: &str) -> Option<(u64, Vec<Site>)> {
    let mut lines = text.lines();
    let rate = lines.next()?.strip_prefix("heap_v2/")?.parse().ok()?;
    let mut sites = Vec::new();
    let mut stack = None;
    for line in lines {
        let line = line.trim();
        if line.starts_with("MAPPED_LIBRARIES") {
            break;
        } else if let Some(addresses) = line.strip_prefix('@') {
            let address =
                |text: &str| usize::from_str_radix(text.trim_start_matches("0x"), 16).ok();
            stack = Some(addresses.split_whitespace().filter_map(address).collect::<Vec<_>>());
        } else if let Some(sums) = line.strip_prefix("t*:")
            // The sums before the first stack are those of the whole process.
            && let Some(stack) = stack.take()
        {
            let (blocks, rest) = sums.split_once(':')?;
            let bytes = rest.split_once('[')?.0;
            let number = |text: &str| text.trim().parse::<u64>().ok();
            sites.push(Site { stack, blocks: number(blocks)?, bytes: number(bytes)? });
        }
    }
    Some((rate, sites))
}

/// What sampled blocks stand for: one of `size` bytes is seen with probability 1 − e^(−size / rate).
fn unsampled(site: &Site, rate: u64) -> (u64, u64) {
    if site.blocks == 0 || rate == 0 {
        return (site.blocks, site.bytes);
    }
    let size = site.bytes as f64 / site.blocks as f64;
    let scale = 1.0 / (1.0 - (-size / rate as f64).exp());
    ((site.blocks as f64 * scale) as u64, (site.bytes as f64 * scale) as u64)
}

/// The functions at a return address, inlined ones first.
fn functions_at(address: usize) -> Vec<Function> {
    let mut functions = Vec::new();
    // The call is before the address to which it returns.
    backtrace::resolve((address - 1) as *mut c_void, |symbol| {
        functions.push(function(
            symbol.name().map_or_else(|| "?".to_owned(), |name| format!("{name:#}")),
            symbol.filename().map(|file| file.display().to_string()).unwrap_or_default(),
            symbol.lineno().unwrap_or(0),
        ));
    });
    if functions.is_empty() {
        functions.push(Function { name: format!("{address:#x}"), file: String::new(), line: 0 });
    }
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_has_its_sites_and_not_its_sums() {
        let text = "heap_v2/524288\n  t*: 3: 1536 [0: 0]\n  t0: 3: 1536 [0: 0]\n\
                    @ 0xff 0x10\n  t*: 1: 512 [0: 0]\n  t0: 1: 512 [0: 0]\n@ 0x20\n  t*: 2: 1024 [0: 0]\n\n\
                    MAPPED_LIBRARIES:\n@ 0x1\n  t*: 9: 9 [0: 0]\n";
        let sites = vec![
            Site { stack: vec![255, 16], blocks: 1, bytes: 512 },
            Site { stack: vec![32], blocks: 2, bytes: 1024 },
        ];
        assert_eq!(parse(text), Some((524_288, sites)));
        assert_eq!(parse("heap_v1/1\n"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_small_block_stands_for_many_and_a_large_one_for_itself() {
        let site = |blocks, bytes| Site { stack: Vec::new(), blocks, bytes };
        let (blocks, bytes) = unsampled(&site(1, 64), 524_288);
        assert!((8000..8400).contains(&blocks) && bytes / blocks == 64, "{blocks} {bytes}");
        assert_eq!(unsampled(&site(1, 100_000_000), 524_288), (1, 100_000_000));
        assert_eq!(unsampled(&site(0, 0), 524_288), (0, 0));
    }
}
