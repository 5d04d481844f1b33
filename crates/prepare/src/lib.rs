//! Operation text becomes a prepared operation: parsed, validated, normalised, planned, cached.
