//! HTTP: from an accepted socket to an answer. [`pipeline`] is the path of a request, to be read from
//! top to bottom; the other modules are its steps.

pub(crate) mod answer;
pub(crate) mod body;
pub(crate) mod cors;
pub(crate) mod listener;
pub(crate) mod media;
pub(crate) mod page;
pub(crate) mod patient;
pub(crate) mod pipeline;
pub(crate) mod request;
