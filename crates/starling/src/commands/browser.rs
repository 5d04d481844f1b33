//! Opening of a page in the browser of the user.

use std::env;
use std::process::{Command, Stdio};

/// Opens a page. Does nothing where there is no browser: the caller has printed the URL.
pub(super) fn open(url: &str) {
    let Some(mut command) = opener() else { return };
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Ok(mut child) = command.spawn() {
        // The process is collected when it ends, which some browsers do only when they are closed.
        std::thread::spawn(move || child.wait());
    }
}

/// Returns the program that opens a URL: that of the variable `BROWSER`, or else the one of the system. `None` if the
/// system has no screen.
fn opener() -> Option<Command> {
    if let Some(browser) = env::var_os("BROWSER").filter(|browser| !browser.is_empty()) {
        return Some(Command::new(browser));
    }
    if cfg!(target_os = "macos") {
        return Some(Command::new("open"));
    }
    if cfg!(windows) {
        let mut command = Command::new("cmd");
        // The empty argument is the title of the window.
        command.args(["/C", "start", ""]);
        return Some(command);
    }
    let has_screen = |name: &str| env::var_os(name).is_some_and(|screen| !screen.is_empty());
    let has_screen = has_screen("DISPLAY") || has_screen("WAYLAND_DISPLAY");
    has_screen.then(|| Command::new("xdg-open"))
}
