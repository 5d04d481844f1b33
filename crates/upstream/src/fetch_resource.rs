//! Sends single GET requests for resources that a router reads occasionally, each on a connection
//! of its own.

use std::time::Duration;

use bytes::Bytes;
use execute::FetchError;
use http::header::{ACCEPT, HOST, HeaderValue, USER_AGENT};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use net::TlsClient;

use crate::TargetError;
use crate::connection::{connect, convert_error};
use crate::target::Target;

/// The value of `user-agent`.
const AGENT: &str = concat!("starling/", env!("CARGO_PKG_VERSION"));

/// A resource that is read by HTTP/1.1.
#[derive(Clone, Debug)]
pub struct Resource {
    target: Target,
    accept: &'static str,
    body_bytes_max: usize,
    timeout: Duration,
}

impl Resource {
    /// Creates the resource at `url`. `tls` is needed for https only.
    ///
    /// # Errors
    /// See [`TargetError`].
    pub fn new(
        url: &str,
        tls: Option<TlsClient>,
        accept: &'static str,
        body_bytes_max: usize,
        timeout: Duration,
    ) -> Result<Self, TargetError> {
        Ok(Self { target: Target::parse(url, tls)?, accept, body_bytes_max, timeout })
    }

    /// Reads the resource. Any status but 200 is an error; redirections are not followed.
    ///
    /// # Errors
    /// See [`FetchError`].
    pub async fn get(&self) -> Result<Bytes, FetchError> {
        let getting = tokio::time::timeout(self.timeout, self.exchange());
        getting.await.unwrap_or(Err(FetchError::Timeout(self.timeout)))
    }

    async fn exchange(&self) -> Result<Bytes, FetchError> {
        let stream = connect(&self.target.origin, self.timeout).await?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| convert_error(&error))?;
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.uri_mut() = self.target.path.clone().into();
        let headers = request.headers_mut();
        headers.insert(HOST, self.target.host.clone());
        headers.insert(ACCEPT, HeaderValue::from_static(self.accept));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let response = async {
            let response =
                sender.send_request(request).await.map_err(|error| convert_error(&error))?;
            if response.status() != StatusCode::OK {
                return Err(FetchError::Status {
                    status: response.status(),
                    content_type: None,
                    body: None,
                });
            }
            let body = Limited::new(response.into_body(), self.body_bytes_max).collect().await;
            match body {
                Ok(body) => Ok(body.to_bytes()),
                Err(error) if error.is::<LengthLimitError>() => {
                    Err(FetchError::TooLarge { limit: self.body_bytes_max as u64 })
                }
                Err(error) => Err(match error.downcast::<hyper::Error>() {
                    Ok(error) => convert_error(&error),
                    Err(_) => FetchError::Closed("unexpected end".into()),
                }),
            }
        };
        tokio::pin!(response);
        // The task that waits for the response drives the connection, which ends with it.
        let mut connection = std::pin::pin!(connection);
        tokio::select! {
            biased;
            response = &mut response => response,
            ended = &mut connection => match ended {
                // The bytes read before the end belong to the response already.
                Ok(()) => response.await,
                Err(error) => Err(convert_error(&error)),
            },
        }
    }
}
