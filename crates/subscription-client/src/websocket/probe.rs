//! A connection that is opened and closed again, to find out whether the subgraph accepts it.

use std::time::Instant;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use wire::Machine as _;
use wire::upstream::{ConnectionEnd, SubprotocolChoice, UpstreamEvent, UpstreamSocket};
use wire::websocket::handshake::HandshakeError;

use super::handshake;
use crate::endpoint::SubscriptionEndpoint;
use crate::probe_outcome::{ProbeError, ProbeErrorKind};

/// Opens a connection without headers, waits until the subgraph has acknowledged it, and closes it.
pub(crate) async fn probe(
    endpoint: &SubscriptionEndpoint,
    offer: SubprotocolChoice,
) -> Result<(), ProbeError> {
    let connected = endpoint.target.connect(endpoint.settings.connect_timeout).await;
    let mut stream = connected.map_err(|error| ProbeError::new(error.to_string()))?;
    let settings = handshake::machine_settings(&endpoint.settings);
    let begun = handshake::begin(endpoint, &settings, offer, &[]);
    let mut socket = begun.map_err(ProbeError::new)?;
    let mut input = Vec::new();
    loop {
        while let Some(event) = socket.poll_event() {
            match event {
                UpstreamEvent::Ready { .. } => {
                    socket.close();
                    // The subgraph has accepted the connection; whether it reads the close frame does not matter.
                    let _ = write(&mut stream, &mut socket).await;
                    return Ok(());
                }
                UpstreamEvent::Ended(end) => return Err(refusal(&end)),
                _ => {}
            }
        }
        let written = write(&mut stream, &mut socket).await;
        written.map_err(|error| ProbeError::new(error.to_string()))?;
        let timeout = socket.poll_timeout().unwrap_or_else(Instant::now);
        tokio::select! {
            read = stream.read_buf(&mut input) => match read {
                Ok(1..) => socket.receive(Instant::now(), &std::mem::take(&mut input)),
                Ok(0) | Err(_) => socket.receive_eof(Instant::now()),
            },
            () = tokio::time::sleep_until(timeout.into()) => socket.handle_timeout(Instant::now()),
        }
    }
}

async fn write(stream: &mut net::Stream, socket: &mut UpstreamSocket) -> std::io::Result<()> {
    while let Some(chunks) = socket.poll_transmit(Instant::now()) {
        stream.write_all(&chunks.to_vec()).await?;
    }
    Ok(())
}

fn refusal(end: &ConnectionEnd) -> ProbeError {
    let needs_credentials = match end {
        ConnectionEnd::Handshake(HandshakeError::Refused(status)) => matches!(status, 401 | 403),
        ConnectionEnd::ClosedByServer(closed) => matches!(closed.code.0, 4400 | 4401 | 4403 | 4500),
        ConnectionEnd::Refused(_) => true,
        _ => false,
    };
    let kind = match needs_credentials {
        true => ProbeErrorKind::NeedsCredentials,
        false => ProbeErrorKind::Unusable,
    };
    ProbeError { reason: end.to_string(), kind }
}
