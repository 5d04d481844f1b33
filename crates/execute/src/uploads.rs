//! The files of a request (GraphQL multipart request specification), and their way to the subgraph that takes them.
//!
//! In the variables a client's file is `null`. The router puts a marker in its place, a text that no client can guess.
//! Plans treat it as any other value, so that the one request whose variables contain the marker is the one that takes
//! the file: there the marker becomes `null` again, and the request becomes a form with the files behind it.
//!
//! A file is sent once, and flows to its subgraph while it arrives: see [`crate::file_transfer`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use plan::{Fetch, FetchKind, Plan, SubgraphOperation, Variables};

use crate::fetch_error::FetchError;
use crate::file_transfer::{FileTransfer, FormBody};
use crate::{ErrorCode, GraphqlError};

/// The files of one request.
pub struct Uploads {
    /// A text of random characters, which markers and boundaries contain.
    secret: Box<str>,
    transfer: Arc<FileTransfer>,
    /// The time that the client has for sending the files.
    time_max: Duration,
}

/// A request body that is a form with files.
#[derive(Clone, Debug)]
pub struct MultipartBody {
    /// The value of `content-type`.
    pub content_type: HeaderValue,
    /// The form, in pieces that come while the client sends its files.
    pub body: FormBody,
    /// The time within which the files must reach the subgraph (`uploads.timeout`).
    pub time_max: Duration,
}

impl Uploads {
    /// Creates the files of a request. `secret` are random characters, at least 16 bytes of them, that no client knows;
    /// `time_max` is the time that the client has for sending the files.
    pub fn new(secret: &str, transfer: Arc<FileTransfer>, time_max: Duration) -> Self {
        Self { secret: secret.into(), transfer, time_max }
    }

    /// The time that the client has for sending the files, which is no part of the time of the operation.
    pub fn time_max(&self) -> Duration {
        self.time_max
    }

    /// Returns the JSON text that stands for a file in variables.
    pub fn marker(secret: &str, file: usize) -> String {
        format!("\"upload:{secret}:{file}\"")
    }

    /// Checks that each file is sent to one subgraph, in one request, as far as the plan shows it.
    ///
    /// # Errors
    /// The operation publishes events, which carry no files, or two of its requests use a file.
    pub fn check_plan(&self, plan: &Plan, variables: &Variables) -> Result<(), GraphqlError> {
        let refuse = |message: String| Err(GraphqlError::new(ErrorCode::BadUserInput, message));
        let is_event =
            |it: &Fetch| matches!(it.kind, FetchKind::Publish(_) | FetchKind::Request(_));
        if plan.fetches.iter().any(is_event) {
            return refuse("an operation with files cannot have fields of event subgraphs".into());
        }
        for file in 0..self.transfer.file_count() {
            let marker = Self::marker(&self.secret, file);
            let has_file = |operation: &SubgraphOperation| {
                let mut values =
                    operation.variables.iter().filter_map(|(_, id)| variables.get(*id));
                values.any(|value| value.contains(&marker))
            };
            let operations = plan.fetches.iter().filter_map(|fetch| match &fetch.kind {
                FetchKind::Root { operation, .. }
                | FetchKind::RootBelow { operation, .. }
                | FetchKind::Entities { operation, .. } => Some(operation),
                FetchKind::Publish(_) | FetchKind::Request(_) => None,
            });
            if operations.filter(|operation| has_file(operation)).count() > 1 {
                return refuse(format!(
                    "the file number {file} of `map` is used by several requests to subgraphs, and can be sent once: \
                     use its variable in one field"
                ));
            }
        }
        Ok(())
    }

    /// Returns the form for a request with this JSON body, and claims its files; `None` if it has none.
    ///
    /// # Errors
    /// Another request has claimed one of the files.
    pub fn claim(&self, body: &Bytes) -> Result<Option<MultipartBody>, FetchError> {
        let prefix = format!("\"upload:{}:", self.secret);
        let mut found = Vec::new();
        find_markers(body, prefix.as_bytes(), "", &mut found);
        let count = self.transfer.file_count();
        found.retain(|(number, _)| *number < count);
        if found.is_empty() {
            return Ok(None);
        }
        let mut operations = body.to_vec();
        let mut claimed: Vec<(usize, Vec<String>)> = Vec::new();
        for (number, path) in found {
            if let Some((_, paths)) = claimed.iter_mut().find(|(known, _)| *known == number) {
                paths.push(path);
                continue;
            }
            operations =
                replace(&operations, Self::marker(&self.secret, number).as_bytes(), b"null");
            claimed.push((number, vec![path]));
        }
        let boundary = format!("starling-{}", self.secret);
        let head = form_head(&boundary, &operations, &claimed);
        let files: Vec<_> = claimed.iter().map(|(number, _)| *number).collect();
        let Some(form) = self.transfer.claim(&files, &boundary, head) else {
            let reason = "a file of the client was sent in another request already";
            return Err(FetchError::Protocol(reason.into()));
        };
        let content_type = format!("multipart/form-data; boundary={boundary}");
        Ok(Some(MultipartBody {
            // The boundary has hexadecimal digits only.
            content_type: HeaderValue::try_from(content_type)
                .unwrap_or(HeaderValue::from_static("multipart/form-data")),
            body: form,
            time_max: self.time_max,
        }))
    }
}

/// Returns the parts of a form before its files: `operations`, and `map` with the paths of the places of each file.
fn form_head(boundary: &str, operations: &[u8], claimed: &[(usize, Vec<String>)]) -> Bytes {
    let part = |name: &str| {
        format!("--{boundary}\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n")
    };
    let mut head = part("operations").into_bytes();
    head.extend_from_slice(operations);
    head.extend_from_slice(b"\r\n");
    head.extend_from_slice(part("map").as_bytes());
    head.push(b'{');
    for (index, (_, paths)) in claimed.iter().enumerate() {
        // Paths consist of names of GraphQL and numbers, which need no escapes.
        let separator = if index == 0 { "" } else { "," };
        let entry = format!("{separator}\"{index}\":[\"{}\"]", paths.join("\",\""));
        head.extend_from_slice(entry.as_bytes());
    }
    head.extend_from_slice(b"}\r\n");
    head.into()
}

impl std::fmt::Debug for Uploads {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Uploads({} files)", self.transfer.file_count())
    }
}

/// Adds the number and the path of each file whose marker is in a JSON text. Only values with a marker are entered, so
/// the depth is that of the variables of a request, which is bounded.
fn find_markers(text: &Bytes, prefix: &[u8], path: &str, found: &mut Vec<(usize, String)>) {
    if !contains(text, prefix) {
        return;
    }
    let mut children: Vec<(String, Bytes)> = Vec::new();
    let step = |name: &str| match path {
        "" => name.to_owned(),
        _ => format!("{path}.{name}"),
    };
    // A text that the router has written itself is valid.
    let _ = match text.first() {
        Some(b'{') => {
            astjson::outline_members(text, |name, value| children.push((step(&name), value)))
        }
        Some(b'[') => {
            let mut index = 0_usize;
            astjson::outline_elements(text, |value| {
                children.push((step(&index.to_string()), value));
                index += 1;
            })
        }
        _ => {
            let number = text.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(b"\""));
            let number = number.and_then(|it| std::str::from_utf8(it).ok()?.parse().ok());
            found.extend(number.map(|number| (number, path.to_owned())));
            return;
        }
    };
    for (path, value) in children {
        find_markers(&value, prefix, &path, found);
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Replaces each occurrence of `part`.
fn replace(text: &[u8], part: &[u8], by: &[u8]) -> Vec<u8> {
    let mut result = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with(part) {
            result.extend_from_slice(by);
            at += part.len();
        } else {
            result.push(text[at]);
            at += 1;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use futures_util::FutureExt;

    use super::*;
    use crate::FileHead;

    const SECRET: &str = "0123456789abcdef";

    fn uploads() -> Uploads {
        let transfer = FileTransfer::new(2);
        for (file, name) in ["a.txt", "b.txt"].into_iter().enumerate() {
            let content_type = Some(HeaderValue::from_static("text/plain"));
            transfer.begin_file(file, FileHead { name: Some(name.into()), content_type });
            let content = Bytes::from_static(if file == 0 { b"first" } else { b"second" });
            transfer.push(file, content).now_or_never().expect("room for a small file");
            transfer.end_file(file);
        }
        transfer.complete();
        Uploads::new(SECRET, transfer, Duration::from_secs(1))
    }

    fn body(variables: &str) -> Bytes {
        let variables = variables.replace("$0", &Uploads::marker(SECRET, 0));
        let variables = variables.replace("$1", &Uploads::marker(SECRET, 1));
        Bytes::from(format!(r#"{{"query":"mutation","variables":{variables}}}"#))
    }

    fn text(form: &MultipartBody) -> String {
        let mut all = Vec::new();
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Ok(Some(piece))) = form.body.poll_piece(&mut context) {
            all.extend_from_slice(&piece);
        }
        String::from_utf8(all).unwrap().replace("\r\n", "\n")
    }

    #[test]
    fn a_request_with_files_becomes_a_form() {
        let form = uploads().claim(&body(r#"{"x":1,"in":{"files":[$1,$0]},"same":$1}"#));
        let form = form.unwrap().unwrap();
        assert_eq!(form.content_type, "multipart/form-data; boundary=starling-0123456789abcdef");
        assert_eq!(
            text(&form),
            r#"--starling-0123456789abcdef
content-disposition: form-data; name="operations"

{"query":"mutation","variables":{"x":1,"in":{"files":[null,null]},"same":null}}
--starling-0123456789abcdef
content-disposition: form-data; name="map"

{"0":["variables.in.files.0","variables.same"],"1":["variables.in.files.1"]}
--starling-0123456789abcdef
content-disposition: form-data; name="1"; filename="a.txt"
content-type: text/plain

first
--starling-0123456789abcdef
content-disposition: form-data; name="0"; filename="b.txt"
content-type: text/plain

second
--starling-0123456789abcdef--
"#
        );
    }

    #[test]
    fn a_request_without_files_stays_as_it_is_and_a_file_is_sent_once() {
        let uploads = uploads();
        assert!(uploads.claim(&body(r#"{"x":"upload:guess:0"}"#)).unwrap().is_none());
        assert!(uploads.claim(&body(r#"{"x":$0}"#)).unwrap().is_some());
        assert!(uploads.claim(&body(r#"{"x":$0}"#)).is_err());
        assert!(uploads.claim(&body(r#"{"x":$1}"#)).unwrap().is_some());
    }
}
