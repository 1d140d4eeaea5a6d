//! One request: the rest of a file, from where an earlier request broke off.

use super::{proxy, trust};
use crate::{Error, Result};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use ureq::http::{HeaderMap, Response};
use ureq::{Agent, Body};

/// How a request ended; when it is an error of ours, the disk's for instance, it ends everything.
#[derive(Debug)]
pub(super) enum End {
    /// All that the server announced has come.
    Whole,
    /// What has come is kept; asking again may bring the rest.
    Broken(String),
    /// The server does not want to now, and may have said when to ask again.
    Busy(String, Option<Duration>),
    /// Asking this server again is no use.
    Refused(String),
}

/// What a request needs to know.
pub(super) struct Request<'a> {
    pub url: &'a str,
    /// Where bytes are collected.
    pub partial: &'a Path,
    /// More than this is not the file.
    pub most: u64,
    /// So long without a byte is a broken connection.
    pub stall: Duration,
}

impl Request<'_> {
    /// Asks for what is missing. `tell` gets the bytes that are there and, when it is known, of how many.
    pub fn run(&self, tell: &mut dyn FnMut(u64, Option<u64>)) -> Result<End> {
        let have = self.partial.metadata().map_or(0, |m| m.len());
        let agent = self.agent()?;
        let mut request = agent.get(self.url).header("Accept-Encoding", "identity");
        if have > 0 {
            request = request.header("Range", format!("bytes={have}-"));
            if let Some(version) = self.version() {
                // The file may have been replaced meanwhile: then the server sends all of the new one.
                request = request.header("If-Range", version);
            }
        }
        match request.call() {
            Ok(response) => self.receive(response, have, tell),
            Err(ureq::Error::TooManyRedirects) => Ok(End::Refused("it redirects in a circle".into())),
            Err(e @ (ureq::Error::BadUri(_) | ureq::Error::Http(_))) => Ok(End::Refused(e.to_string())),
            Err(e) => Ok(End::Broken(self.explain(&e))),
        }
    }

    fn receive(&self, response: Response<Body>, have: u64, tell: &mut dyn FnMut(u64, Option<u64>)) -> Result<End> {
        let (status, headers) = (response.status(), response.headers());
        let range = headers.get("content-range").and_then(|v| v.to_str().ok()).and_then(ContentRange::parse);
        let start = match (status.as_u16(), &range) {
            (200, _) => 0,
            (206, Some(range)) if range.start == Some(have) => have,
            // Its own idea of a range, or nothing left to send: whether it is all, the digest will tell.
            (206, _) => return self.start_over("the server sent another part than the one asked for"),
            (416, Some(ContentRange { total: Some(total), .. })) if *total == have => return Ok(End::Whole),
            (416, _) if have > 0 => return self.start_over("the server has nothing from there on"),
            (408 | 425 | 429 | 500..=599, _) => {
                let wait = headers.get("retry-after").and_then(|v| v.to_str().ok()?.trim().parse().ok());
                return Ok(End::Busy(format!("the server answered {status}"), wait.map(Duration::from_secs)));
            }
            _ => return Ok(End::Refused(format!("the server answered {status}"))),
        };
        let length: Option<u64> = headers.get("content-length").and_then(|v| v.to_str().ok()?.parse().ok());
        let total = range.and_then(|r| r.total).or(length.map(|length| start.saturating_add(length)));
        if let Some(total) = total.filter(|total| *total > self.most) {
            return Ok(End::Refused(format!("it offers {total} bytes, which is another file")));
        }
        self.note_version(start, headers)?;
        self.collect(response.into_body().into_reader(), start, total, tell)
    }

    fn collect(
        &self,
        mut body: impl Read,
        start: u64,
        total: Option<u64>,
        tell: &mut dyn FnMut(u64, Option<u64>),
    ) -> Result<End> {
        let mut file = self.open(start).map_err(|e| self.disk(e))?;
        let (mut have, mut buffer) = (start, vec![0; 128 << 10]);
        tell(have, total);
        loop {
            let read = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Ok(End::Broken(self.explain(&ureq::Error::from(e)))),
            };
            if have + read as u64 > self.most {
                return self.start_over("it sends more bytes than the file has");
            }
            file.write_all(&buffer[..read]).map_err(|e| self.disk(e))?;
            have += read as u64;
            tell(have, total);
        }
        file.sync_data().map_err(|e| self.disk(e))?;
        Ok(match total {
            Some(total) if have < total => End::Broken(format!("the connection ended after {have} of {total} bytes")),
            _ => End::Whole,
        })
    }

    fn open(&self, start: u64) -> io::Result<File> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(self.partial)?;
        file.set_len(start)?;
        file.seek(SeekFrom::Start(start))?;
        Ok(file)
    }

    fn agent(&self) -> Result<Agent> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .user_agent(concat!("neurona/", env!("CARGO_PKG_VERSION")))
            .proxy(proxy::for_url(self.url)?)
            .tls_config(trust::config()?)
            .timeout_resolve(Some(self.stall))
            .timeout_connect(Some(self.stall))
            .timeout_recv_response(Some(self.stall))
            .timeout_per_read(Some(self.stall))
            .timeout_per_write(Some(self.stall));
        Ok(config.build().new_agent())
    }

    /// Forgets what has come: it does not belong to the file.
    fn start_over(&self, why: &str) -> Result<End> {
        forget(self.partial)?;
        Ok(End::Broken(format!("{why}; starting over")))
    }

    /// Which version of the file the bytes that are there belong to.
    fn version(&self) -> Option<String> {
        let text = std::fs::read_to_string(version_path(self.partial)).ok()?;
        Some(text.trim().to_string()).filter(|text| !text.is_empty() && text.is_ascii())
    }

    fn note_version(&self, start: u64, headers: &HeaderMap) -> Result<()> {
        if start > 0 {
            return Ok(());
        }
        let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok());
        // A weak tag does not promise the same bytes, and a server ignores it here.
        let version = text("etag").filter(|tag| !tag.starts_with("W/")).or(text("last-modified")).unwrap_or_default();
        std::fs::write(version_path(self.partial), version).map_err(|e| self.disk(e))
    }

    fn explain(&self, error: &ureq::Error) -> String {
        let stalled = format!("no byte came for {} seconds", self.stall.as_secs_f64());
        match error {
            ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => {
                format!("the server could not be reached within {} seconds", self.stall.as_secs_f64())
            }
            ureq::Error::Timeout(_) => stalled,
            ureq::Error::Io(e) if e.kind() == io::ErrorKind::TimedOut => stalled,
            other => other.to_string(),
        }
    }

    fn disk(&self, source: io::Error) -> Error {
        disk("write", self.partial, source)
    }
}

/// An error of the disk; when it is full, with advice.
pub(super) fn disk(action: &'static str, path: &Path, source: io::Error) -> Error {
    let full = matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let source = match full {
        true => io::Error::other(format!("{source}; make room and run it again: what has come is kept")),
        false => source,
    };
    Error::File { action, path: path.into(), source }
}

fn version_path(partial: &Path) -> PathBuf {
    partial.with_added_extension("version")
}

/// Removes what was collected.
pub(super) fn forget(partial: &Path) -> Result<()> {
    for path in [partial, &version_path(partial)] {
        match std::fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(disk("remove", path, e)),
            _ => {}
        }
    }
    Ok(())
}

/// `bytes 100-199/1000`, or `bytes */1000`.
#[derive(Debug, PartialEq, Eq)]
struct ContentRange {
    start: Option<u64>,
    total: Option<u64>,
}

impl ContentRange {
    fn parse(text: &str) -> Option<Self> {
        let (range, total) = text.trim().strip_prefix("bytes")?.trim().split_once('/')?;
        let start = range.split_once('-').and_then(|(start, _)| start.trim().parse().ok());
        Some(ContentRange { start, total: total.trim().parse().ok() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ranges() {
        let parse = |text| ContentRange::parse(text).map(|r| (r.start, r.total));
        assert_eq!(parse("bytes 100-199/1000"), Some((Some(100), Some(1000))));
        assert_eq!(parse("bytes 0-0/*"), Some((Some(0), None)));
        assert_eq!(parse("bytes */1000"), Some((None, Some(1000))));
        assert_eq!(parse("lines 1-2/3"), None);
        assert_eq!(parse("bytes"), None);
    }
}
