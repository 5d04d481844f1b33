//! Heap profiles: jemalloc's sampled allocations that are not freed.
//!
//! The profiler must be on when the process starts, because every block is marked as sampled or not: the environment
//! must contain `_RJEM_MALLOC_CONF=prof:true`. jemalloc writes its dump only to a file; the file is read, its
//! addresses are resolved to names, and the file is removed.

use std::collections::HashMap;
use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use tikv_jemalloc_ctl::{profiling, raw};

use crate::ProfileError;
use crate::allocator_frames::skip_allocator_frames;
use crate::encoding::{Function, ProfileEncoder, ValueType};
use crate::names::name_function;

/// One allocation site of a dump.
#[derive(Debug, PartialEq)]
struct AllocationSite {
    /// The return addresses, innermost first.
    stack: Vec<usize>,
    /// The numbers of sampled blocks and bytes that are not freed.
    blocks: u64,
    bytes: u64,
}

/// Serialises dumps: they share the file.
static DUMP_LOCK: Mutex<()> = Mutex::new(());

/// Returns a profile of the memory that is allocated now, by allocation site.
///
/// # Errors
/// [`ProfileError::HeapProfilerOff`] if the process was started without the profiler.
pub fn heap() -> Result<Vec<u8>, ProfileError> {
    if !profiling::prof::read().unwrap_or(false) {
        return Err(ProfileError::HeapProfilerOff);
    }
    let text = {
        let _one = DUMP_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        dump_heap()?
    };
    let (rate, sites) = parse_dump(&text)
        .ok_or_else(|| ProfileError::System("cannot parse the allocator's dump".to_owned()))?;

    let mut encoder = ProfileEncoder::new(&[
        ValueType("inuse_objects", "count"),
        ValueType("inuse_space", "bytes"),
    ]);
    let space = ValueType("space", "bytes");
    encoder.set_period(SystemTime::now(), Duration::ZERO, &space, rate);
    let mut names = HashMap::new();
    for site in &sites {
        let (blocks, bytes) = scale_up_samples(site, rate);
        for address in &site.stack {
            names.entry(*address).or_insert_with(|| functions_at(*address));
        }
        let stack = site.stack.iter().map(|address| names[address].as_slice());
        let stack = skip_allocator_frames(stack);
        encoder.add_sample(stack, &[blocks, bytes], None);
    }
    Ok(encoder.finish())
}

/// Returns the text of the allocator's dump, which is written to a temporary file.
fn dump_heap() -> Result<String, ProfileError> {
    // jemalloc keeps no reference, but its interface requires a static string: one for the whole process.
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
    // If the file cannot be removed, the next dump overwrites it.
    let _ = std::fs::remove_file(path);
    text
}

/// Parses a dump of version 2 into the mean distance of samples, in bytes, and the allocation sites.
///
/// ```text
/// heap_v2/524288
///   t*: 100: 4096 [0: 0]
/// @ 0x1 0x2
///   t*: 1: 512 [0: 0]
/// MAPPED_LIBRARIES: …
/// ```
fn parse_dump(text: &str) -> Option<(u64, Vec<AllocationSite>)> {
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
            sites.push(AllocationSite { stack, blocks: number(blocks)?, bytes: number(bytes)? });
        }
    }
    Some((rate, sites))
}

/// Estimates the blocks and bytes that the sampled ones represent: a block of `size` bytes is sampled with probability
/// 1 − e^(−size / rate).
fn scale_up_samples(site: &AllocationSite, rate: u64) -> (u64, u64) {
    if site.blocks == 0 || rate == 0 {
        return (site.blocks, site.bytes);
    }
    let size = site.bytes as f64 / site.blocks as f64;
    let scale = 1.0 / (1.0 - (-size / rate as f64).exp());
    ((site.blocks as f64 * scale) as u64, (site.bytes as f64 * scale) as u64)
}

/// Returns the functions at a return address, inlined ones first.
fn functions_at(address: usize) -> Vec<Function> {
    let mut functions = Vec::new();
    // The call instruction is before the address to which it returns.
    backtrace::resolve((address - 1) as *mut c_void, |symbol| {
        functions.push(name_function(
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
    fn a_dump_is_parsed_into_its_sites_without_its_sums() {
        let text = "heap_v2/524288\n  t*: 3: 1536 [0: 0]\n  t0: 3: 1536 [0: 0]\n\
                    @ 0xff 0x10\n  t*: 1: 512 [0: 0]\n  t0: 1: 512 [0: 0]\n@ 0x20\n  t*: 2: 1024 [0: 0]\n\n\
                    MAPPED_LIBRARIES:\n@ 0x1\n  t*: 9: 9 [0: 0]\n";
        let sites = vec![
            AllocationSite { stack: vec![255, 16], blocks: 1, bytes: 512 },
            AllocationSite { stack: vec![32], blocks: 2, bytes: 1024 },
        ];
        assert_eq!(parse_dump(text), Some((524_288, sites)));
        assert_eq!(parse_dump("heap_v1/1\n"), None);
        assert_eq!(parse_dump(""), None);
    }

    #[test]
    fn a_small_block_represents_many_and_a_large_one_itself() {
        let site = |blocks, bytes| AllocationSite { stack: Vec::new(), blocks, bytes };
        let (blocks, bytes) = scale_up_samples(&site(1, 64), 524_288);
        assert!((8000..8400).contains(&blocks) && bytes / blocks == 64, "{blocks} {bytes}");
        assert_eq!(scale_up_samples(&site(1, 100_000_000), 524_288), (1, 100_000_000));
        assert_eq!(scale_up_samples(&site(0, 0), 524_288), (0, 0));
    }
}
