//! Removal of the allocator's own frames from stacks, so that a heap profile names the code that allocated.

use crate::encoding::Function;

/// True if the function is part of allocating and not of the purpose of the memory: jemalloc, and the functions of the
/// standard library that grow and box.
fn is_allocation(name_function: &Function) -> bool {
    let Function { name, file, line: _ } = name_function;
    is_allocator_entry(name_function)
        || ["jemalloc", "/library/alloc/src/"].iter().any(|it| file.contains(it))
        || ["__rust_", "alloc::"].iter().any(|it| name.contains(it))
}

/// True for the functions of jemalloc that other code calls. Its internal functions may have any name.
fn is_allocator_entry(name_function: &Function) -> bool {
    name_function.name.starts_with("_rjem_")
}

/// Returns a stack without its innermost frames that belong to the allocator, which are the same for all allocations.
/// The stack and the functions inlined at each location are ordered innermost first.
pub(crate) fn skip_allocator_frames<'a>(
    stack: impl Iterator<Item = &'a [Function]>,
) -> Vec<&'a [Function]> {
    let stack: Vec<&[Function]> = stack.collect();
    let entry =
        stack.iter().rposition(|location| location.iter().any(is_allocator_entry)).unwrap_or(0);
    for (at, location) in stack.iter().enumerate().skip(entry) {
        let within = location.iter().rposition(is_allocator_entry).map_or(0, |last| last + 1);
        let outer = location[within..].iter().skip_while(|it| is_allocation(it)).count();
        if outer > 0 {
            let first = &location[location.len() - outer..];
            return std::iter::once(first).chain(stack[at + 1..].iter().copied()).collect();
        }
    }
    // A stack that consists of the allocator's frames only is kept as it is.
    stack
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::name_function;

    #[test]
    fn memory_is_attributed_to_the_caller_of_the_allocator() {
        let at = |name: &str, file: &str| name_function(name.to_owned(), file.to_owned(), 1);
        // jemalloc's own functions have no file if debug information is missing.
        let prof = [at("prof_backtrace_impl", ""), at("_rjem_mallocx", "")];
        let joining = [
            at("alloc", "/registry/tikv-jemallocator-0.7.0/src/lib.rs"),
            at("__rust_alloc", "/build/starling/crates/starling/src/main.rs"),
            at("new", "/rustc/59807616e1/library/alloc/src/boxed.rs"),
            at("join", "/build/starling/crates/hub/src/shard/mod.rs"),
        ];
        let caller = [at("wake", "/rustc/59807616e1/library/alloc/src/task.rs")];
        let stack = || [&prof[..], &joining, &caller].into_iter();
        let names = |stack: Vec<&[Function]>| -> Vec<String> {
            stack.into_iter().flatten().map(|name_function| name_function.name.clone()).collect()
        };
        assert_eq!(
            names(skip_allocator_frames(stack())),
            ["hub::shard::join", "alloc::task::wake"]
        );
        assert_eq!(skip_allocator_frames(stack().take(1)), [&prof[..]]);
    }
}
