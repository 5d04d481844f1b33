//! Sends single requests that a router needs occasionally, each on a connection of its own: GET for resources, POST for
//! questions to a server.

use std::path::Path;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use execute::FetchError;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, IF_NONE_MATCH, USER_AGENT};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use net::{Roots, TlsClient, TlsIdentity, read_pem_file};

use crate::TargetError;
use crate::aws_signer::AwsSigner;
use crate::connection::{connect, convert_error};
use crate::content_type::printable_media_type;
use crate::target::Target;

/// The value of `user-agent`.
const AGENT: &str = concat!("starling/", env!("CARGO_PKG_VERSION"));

/// The outcome of a request that names the version that is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Revision {
    /// The version that is known is the current one.
    Unchanged,
    /// There is another version.
    Changed {
        /// The resource.
        body: Bytes,
        /// The headers of the response. `etag` is the name of this version, for the next request.
        headers: HeaderMap,
    },
}

/// The response to a message, whatever its status.
#[derive(Clone, Debug)]
pub struct MessageResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

/// A resource that is read by HTTP/1.1.
#[derive(Clone, Debug)]
pub struct Resource {
    target: Target,
    accept: &'static str,
    body_bytes_max: usize,
    timeout: Duration,
    signer: Option<AwsSigner>,
}

/// Returns the TLS for a [`Resource`] at `url`, `None` if that needs none. It trusts the certificate authorities in the
/// PEM file `ca`, or those that the system trusts. Blocks.
///
/// # Errors
/// The certificate authorities cannot be read.
pub fn resource_tls(url: &str, ca: Option<&Path>) -> Result<Option<TlsClient>, String> {
    resource_tls_with_identity(url, ca, None)
}

/// Returns the TLS for a [`Resource`] at `url`, as [`resource_tls`] does. `identity` are the PEM files of the router's
/// own certificate and of its key, for a server that requests one. Blocks.
///
/// # Errors
/// A file cannot be read, or the certificate and the key do not belong together.
pub fn resource_tls_with_identity(
    url: &str,
    ca: Option<&Path>,
    identity: Option<(&Path, &Path)>,
) -> Result<Option<TlsClient>, String> {
    tls_client(url, ca, identity, b"http/1.1")
}

/// Returns the TLS for a server at `url`, as [`resource_tls`] does. It offers this protocol. Blocks.
///
/// # Errors
/// The certificate authorities cannot be read.
pub fn server_tls(
    url: &str,
    ca: Option<&Path>,
    protocol: &[u8],
) -> Result<Option<TlsClient>, String> {
    tls_client(url, ca, None, protocol)
}

fn tls_client(
    url: &str,
    ca: Option<&Path>,
    identity: Option<(&Path, &Path)>,
    protocol: &[u8],
) -> Result<Option<TlsClient>, String> {
    if !url.starts_with("https:") {
        return Ok(None);
    }
    let read = |name: &str, path: &Path| {
        read_pem_file(path).map_err(|error| format!("{name} {}: {error}", path.display()))
    };
    let ca = ca.map(|path| read("ca", path)).transpose()?;
    let identity = match identity {
        Some((certificate, key)) => Some((read("certificate", certificate)?, read("key", key)?)),
        None => None,
    };
    let roots = ca.as_deref().map_or(Roots::Native, Roots::Pem);
    let identity = identity.as_ref();
    let identity = identity.map(|(certificates, key)| TlsIdentity { certificates, key });
    TlsClient::new(roots, identity, &[protocol]).map(Some).map_err(|error| error.to_string())
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
        let target = Target::parse(url, tls)?;
        Ok(Self { target, accept, body_bytes_max, timeout, signer: None })
    }

    /// Signs the requests by GET for AWS.
    #[must_use]
    pub fn signed_by(self, signer: AwsSigner) -> Self {
        Self { signer: Some(signer), ..self }
    }

    /// Reads the resource. Any status but 200 is an error; redirections are not followed.
    ///
    /// # Errors
    /// See [`FetchError`].
    pub async fn get(&self) -> Result<Bytes, FetchError> {
        self.exchange_in_time(Request::new(Full::default())).await.map(body_of)
    }

    /// Reads the response of any status to a GET; redirections are not followed.
    ///
    /// # Errors
    /// See [`FetchError`].
    pub async fn get_message(&self) -> Result<MessageResponse, FetchError> {
        self.exchange_message(Request::new(Full::default())).await
    }

    /// Reads the resource with further headers, unless its version is still `etag`. Any status but 200, and 304 for a
    /// version that is known, is an error; redirections are not followed.
    ///
    /// # Errors
    /// See [`FetchError`].
    pub async fn get_changed(
        &self,
        headers: HeaderMap,
        etag: Option<&HeaderValue>,
    ) -> Result<Revision, FetchError> {
        let mut request = Request::new(Full::default());
        *request.headers_mut() = headers;
        if let Some(etag) = etag {
            request.headers_mut().insert(IF_NONE_MATCH, etag.clone());
        }
        self.exchange_in_time(request).await
    }

    /// Sends a JSON body by POST with further headers, and reads the response. Any status but those of success is an
    /// error, which contains the body if that is JSON; redirections are not followed.
    ///
    /// # Errors
    /// See [`FetchError`].
    pub async fn post_json(&self, body: Bytes, headers: HeaderMap) -> Result<Bytes, FetchError> {
        self.post(body, "application/json", headers).await
    }

    /// Sends a form by POST, as [`Resource::post_json`] sends JSON. `body` is encoded as
    /// `application/x-www-form-urlencoded`.
    ///
    /// # Errors
    /// See [`FetchError`].
    pub async fn post_form(&self, body: Bytes, headers: HeaderMap) -> Result<Bytes, FetchError> {
        self.post(body, "application/x-www-form-urlencoded", headers).await
    }

    /// Sends a message of this media type by POST with further headers, and reads the response of any status.
    ///
    /// # Errors
    /// See [`FetchError`].
    pub async fn post_message(
        &self,
        body: Bytes,
        content_type: HeaderValue,
        headers: HeaderMap,
    ) -> Result<MessageResponse, FetchError> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.headers_mut() = headers;
        request.headers_mut().insert(CONTENT_TYPE, content_type);
        self.exchange_message(request).await
    }

    async fn exchange_message(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<MessageResponse, FetchError> {
        let read = |response: Response<Incoming>| async move {
            let (head, body) = response.into_parts();
            let body = self.read_body(body).await?;
            Ok(MessageResponse { status: head.status, headers: head.headers, body })
        };
        let exchange = tokio::time::timeout(self.timeout, self.send(request, read));
        exchange.await.unwrap_or(Err(FetchError::Timeout(self.timeout)))
    }

    async fn post(
        &self,
        body: Bytes,
        content_type: &'static str,
        headers: HeaderMap,
    ) -> Result<Bytes, FetchError> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.headers_mut() = headers;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        self.exchange_in_time(request).await.map(body_of)
    }

    async fn exchange_in_time(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Revision, FetchError> {
        let exchange = tokio::time::timeout(self.timeout, self.exchange(request));
        exchange.await.unwrap_or(Err(FetchError::Timeout(self.timeout)))
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Revision, FetchError> {
        let is_post = request.method() == Method::POST;
        let is_conditional = request.headers().contains_key(IF_NONE_MATCH);
        let read = |response: Response<Incoming>| async move {
            let status = response.status();
            if status == StatusCode::NOT_MODIFIED && is_conditional {
                return Ok(Revision::Unchanged);
            }
            if status == StatusCode::OK || (is_post && status.is_success()) {
                let (head, body) = response.into_parts();
                let body = self.read_body(body).await?;
                return Ok(Revision::Changed { body, headers: head.headers });
            }
            let content_type = is_post.then(|| printable_media_type(response.headers())).flatten();
            let is_json =
                content_type.as_deref().is_some_and(|it| it.to_ascii_lowercase().ends_with("json"));
            // The status says enough if the body cannot be read.
            let body = match is_json {
                true => self.read_body(response.into_body()).await.ok(),
                false => None,
            };
            Err(FetchError::Status { status, content_type, body })
        };
        self.send(request, read).await
    }

    /// Sends a request on a connection of its own. `read` reads the response.
    async fn send<T, R: Future<Output = Result<T, FetchError>>>(
        &self,
        mut request: Request<Full<Bytes>>,
        read: impl FnOnce(Response<Incoming>) -> R,
    ) -> Result<T, FetchError> {
        let stream = connect(&self.target.origin, self.timeout).await?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| convert_error(&error))?;
        *request.uri_mut() = self.target.path.clone().into();
        let headers = request.headers_mut();
        headers.insert(HOST, self.target.host.clone());
        headers.insert(ACCEPT, HeaderValue::from_static(self.accept));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        if let Some(signer) = self.signer.as_ref().filter(|_| *request.method() == Method::GET) {
            let now = SystemTime::now();
            signer.sign_get(&self.target.absolute, request.headers_mut(), now)?;
        }
        let response = async {
            let response =
                sender.send_request(request).await.map_err(|error| convert_error(&error))?;
            read(response).await
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

    async fn read_body(&self, body: Incoming) -> Result<Bytes, FetchError> {
        match Limited::new(body, self.body_bytes_max).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => {
                Err(FetchError::TooLarge { limit: self.body_bytes_max as u64 })
            }
            Err(error) => Err(match error.downcast::<hyper::Error>() {
                Ok(error) => convert_error(&error),
                Err(_) => FetchError::Closed("unexpected end".into()),
            }),
        }
    }
}

/// Returns the body of a response to a request without a known version, which always has one.
fn body_of(revision: Revision) -> Bytes {
    match revision {
        Revision::Changed { body, .. } => body,
        Revision::Unchanged => Bytes::new(),
    }
}
