//! A plan and variables become a payload: fetch, merge, repair nulls, print.
