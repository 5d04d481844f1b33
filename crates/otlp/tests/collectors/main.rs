//! The exporters against collectors that take what they get, fail, or do not respond.

mod metrics;
mod mock_collector;
mod traces;
