//! The page at the root of the router: GraphiQL bundled at build time, or a plain page of our own.
