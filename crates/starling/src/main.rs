//! The command line of the router.

fn main() {}
