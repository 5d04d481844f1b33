//! The supergraph model: types, fields, who resolves what, keys and jumps.
