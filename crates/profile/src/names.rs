//! Function names as developers know them. Debug information with lines only has a function's own name, `new` or
//! `poll`, and the file; the module is derived from the file.

use crate::encoding::Function;

/// Creates a function with its module, which is derived from the file.
pub(crate) fn name_function(name: String, file: String, line: u32) -> Function {
    let module = if name.contains("::") { None } else { module_of(&file) };
    let name = module.map(|module| format!("{module}::{name}")).unwrap_or(name);
    Function { name, file, line }
}

/// Returns the module of a source file: `tokio::runtime::task::core` for `…/tokio-1.54.1/src/runtime/task/core.rs`.
/// `None` if the file is not Rust, or is not below a `src` folder of a package.
fn module_of(file: &str) -> Option<String> {
    let (folder, within) = file.strip_suffix(".rs")?.rsplit_once("/src/")?;
    // Cargo's folder of registry crates is called `src` too.
    let package = folder.rsplit('/').next().filter(|_| !within.starts_with("index."))?;
    let version = package.match_indices('-').map(|(at, _)| at);
    let mut version =
        version.filter(|at| package[at + 1..].starts_with(|it: char| it.is_ascii_digit()));
    let package = version.next().map_or(package, |at| &package[..at]);
    let mut parts: Vec<&str> = within.split('/').collect();
    parts.pop_if(|last| matches!(*last, "mod" | "lib" | "main"));
    let module =
        std::iter::once(package.replace('-', "_")).chain(parts.into_iter().map(str::to_owned));
    Some(module.collect::<Vec<_>>().join("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_derived_from_its_file() {
        let registry = "/home/me/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f";
        for (file, module) in [
            (
                &*format!("{registry}/tokio-1.54.1/src/runtime/task/core.rs"),
                "tokio::runtime::task::core",
            ),
            (&format!("{registry}/tokio-util-0.7.20/src/codec/mod.rs"), "tokio_util::codec"),
            ("/rustc/59807616e1/library/alloc/src/boxed.rs", "alloc::boxed"),
            ("/build/starling/crates/hub/src/shard/mod.rs", "hub::shard"),
            ("/build/starling/crates/starling/src/main.rs", "starling"),
        ] {
            assert_eq!(
                name_function("new".to_owned(), file.to_owned(), 7).name,
                format!("{module}::new")
            );
        }
    }

    #[test]
    fn a_function_without_a_module_keeps_its_name() {
        for (name, file) in [
            ("prof_backtrace_impl", "/build/tikv-jemalloc-sys/src/prof_sys.c"),
            (
                "new",
                "/home/me/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/flat-1.0.0/lib.rs",
            ),
            ("new", ""),
            ("a::b", "/build/starling/crates/hub/src/shard/mod.rs"),
        ] {
            assert_eq!(name_function(name.to_owned(), file.to_owned(), 7).name, name);
        }
    }
}
