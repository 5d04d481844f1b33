//! The path of one operation from any transport: admit, prepare, coerce variables, execute. The way in which bytes
//! reach the client is up to the transport.
//!
//! [`admit`] lets the operations of a request in (`work_admission`). [`prepare_for`] prepares one of them for the graph
//! that serves (`preparation`): `operation_lookup` finds its text, `request_values` reads its variables and its cursor.
//! [`run`] looks up its response (`response_lookup`), or shares or executes it (`execution`).

mod execution;
mod operation_lookup;
mod operation_run;
mod preparation;
mod request_values;
mod response_lookup;
mod work_admission;

pub use operation_run::{needs_a_stream, run};
pub use preparation::{OperationClient, prepare_for, prepare_in_batch, prepare_text};
pub use work_admission::{AdmittedWork, admit, admit_handshake};
