//! The command `starling healthcheck`: asks a running router for its health, for images without curl.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use config::diagnostic::Diagnostic;
use http::StatusCode;
use upstream::Resource;

/// The health checks respond with a line.
const BODY_BYTES_MAX: usize = 16 << 10;

/// Asks a running router whether it accepts traffic. Exits with status 1 if not.
#[derive(clap::Args)]
#[command(after_help = "\
Without `--url` and `--config`, the router is asked at 127.0.0.1:8088, the default of `admin.listen`.\n\n\
Exit status: 0 for HTTP status 200, 1 for anything else, 2 for a wrong command line.\n\n\
Examples:\n  \
starling healthcheck --config /etc/starling/starling.yaml\n  \
starling healthcheck --url http://127.0.0.1:8088/health/live\n  \
HEALTHCHECK CMD [\"starling\", \"healthcheck\"]     in a Dockerfile")]
pub(crate) struct HealthcheckArguments {
    /// The configuration of the router: its section `admin` names the address. The rest is not checked.
    #[arg(long, value_name = "FILE", conflicts_with = "url")]
    config: Option<PathBuf>,
    /// The whole URL to ask (http or https).
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// The question: whether the router accepts traffic, or only whether its process runs.
    #[arg(long, value_name = "CHECK", default_value = "ready", conflicts_with = "url")]
    check: HealthCheck,
    /// The certificate authorities that may have signed the certificate of the listener (PEM), in place of those that
    /// the system trusts.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The time limit.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = load::units::parse_duration)]
    timeout: Duration,
}

#[derive(Clone, Copy, ValueEnum)]
enum HealthCheck {
    /// `/health/ready`: false during the start, overload and shutdown.
    Ready,
    /// `/health/live`: true while the process responds.
    Live,
}

impl HealthCheck {
    fn path(self) -> &'static str {
        match self {
            Self::Ready => "/health/ready",
            Self::Live => "/health/live",
        }
    }
}

pub(crate) fn run(arguments: &HealthcheckArguments) -> ExitCode {
    let url = match &arguments.url {
        Some(url) => url.clone(),
        None => match admin_origin(arguments) {
            Ok(origin) => format!("{origin}{}", arguments.check.path()),
            Err(problems) => {
                super::report(&problems);
                return ExitCode::FAILURE;
            }
        },
    };
    match request(&url, arguments.ca.as_deref(), arguments.timeout) {
        Ok((StatusCode::OK, text)) => {
            super::print(&format!("{text}\n"));
            ExitCode::SUCCESS
        }
        Ok((status, text)) => {
            super::print_error(&format!("{url}: HTTP status {status}: {text}\n"));
            ExitCode::FAILURE
        }
        Err(reason) => {
            super::print_error(&format!("{url}: {reason}\n"));
            ExitCode::FAILURE
        }
    }
}

/// Returns the scheme and the address of the admin listener.
fn admin_origin(arguments: &HealthcheckArguments) -> Result<String, Vec<Diagnostic>> {
    let admin = match &arguments.config {
        Some(file) => config::admin_settings(file)?,
        None => config::Admin::default(),
    };
    let scheme = if admin.tls.is_some() { "https" } else { "http" };
    Ok(format!("{scheme}://{}", reachable(admin.listen)))
}

/// Returns the address at which a listener of this machine is reached: one for all interfaces has no address itself.
fn reachable(mut listen: SocketAddr) -> SocketAddr {
    if listen.ip().is_unspecified() {
        listen.set_ip(match listen.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    listen
}

/// Returns the status and the first line of the response.
fn request(
    url: &str,
    ca: Option<&Path>,
    timeout: Duration,
) -> Result<(StatusCode, String), String> {
    let tls = upstream::resource_tls(url, ca)?;
    let resource = Resource::new(url, tls, "*/*", BODY_BYTES_MAX, timeout)
        .map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start a runtime: {error}"))?;
    let response = runtime.block_on(resource.get_message());
    // A lookup of the host name may still run; the process does not wait for it.
    runtime.shutdown_background();
    let response = response.map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&response.body);
    let line = text.lines().next().unwrap_or_default();
    // The URL may lead to any server, and its text to a terminal.
    let line = line.chars().map(|it| if it.is_control() { ' ' } else { it }).take(200).collect();
    Ok((response.status, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_for_all_interfaces_is_asked_at_the_loopback_address() {
        for (listen, expected) in [
            ("0.0.0.0:8088", "127.0.0.1:8088"),
            ("[::]:8088", "[::1]:8088"),
            ("10.0.0.7:9", "10.0.0.7:9"),
        ] {
            assert_eq!(reachable(listen.parse().unwrap()).to_string(), expected);
        }
    }
}
