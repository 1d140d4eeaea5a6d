//! A file from the first mirror that has it, in as many requests as it takes.

use super::http::{End, Request, forget};
use super::set::Piece;
use super::{Event, Patience, check};
use crate::{Error, Result};
use std::path::Path;
use std::time::Duration;

/// A server may name a time to come back; nobody waits longer than this.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Brings the published file to `partial`, where an earlier call may have left its beginning.
pub(super) fn fetch(
    urls: &[String],
    piece: &Piece,
    partial: &Path,
    patience: &Patience,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<()> {
    let mut problems = Vec::new();
    for url in urls {
        match from_one(url, piece, partial, patience, tell)? {
            None => return Ok(()),
            Some(problem) => problems.push((url, problem)),
        }
    }
    let Some((url, problem)) = problems.pop() else {
        return Err(Error::Argument(format!("no address is known for {}", piece.name)));
    };
    let mut problem = format!("{problem}; a mirror or a folder can be given instead (--from)");
    for (other, reason) in problems {
        problem += &format!("; before it {other} was tried: {reason}");
    }
    Err(Error::Download { url: url.clone(), problem })
}

/// Asks one server until the file is there, or says why that is no use.
fn from_one(
    url: &str,
    piece: &Piece,
    partial: &Path,
    patience: &Patience,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Option<String>> {
    // A mirror may have packed the file in its own way; far more bytes are something else.
    let most = piece.size.saturating_mul(2).saturating_add(1 << 20);
    let request = Request { url, partial, most, stall: patience.stall };
    let (mut failures, mut furthest, mut doubted) = (0, length(partial), false);
    loop {
        let before = length(partial);
        let end = request.run(&mut |have, total| tell(Event::Bytes { file: piece.name, have, total }))?;
        let now = length(partial);
        let mut asked_wait = None;
        let problem = match end {
            End::Refused(problem) => return Ok(Some(problem)),
            // A server that announces more than there is: the digest decides.
            End::Broken(_) if now == piece.size && check::is_right(piece, partial)? => return Ok(None),
            End::Broken(problem) => problem,
            End::Busy(problem, wait) => {
                asked_wait = wait;
                problem
            }
            End::Whole => {
                tell(Event::Checking { file: piece.name });
                if check::is_right(piece, partial)? {
                    return Ok(None);
                }
                let difference = check::difference(piece, partial);
                if now < piece.size && !doubted {
                    // The connection may have ended early without the server having said how much there is.
                    doubted = true;
                    format!("{now} of {} bytes came", piece.size)
                } else {
                    forget(partial)?;
                    if before == 0 {
                        // All of it came in one go, and it is another file: it will be that again.
                        return Ok(Some(format!("what came is not the published file: {difference}")));
                    }
                    format!("the parts do not belong together ({difference}); starting over")
                }
            }
        };
        // Only getting further than ever counts: a server that always breaks off at one place must not go on forever.
        if length(partial) > furthest {
            (furthest, failures) = (length(partial), 0);
        }
        failures += 1;
        if failures >= patience.attempts {
            let way = "if the network needs a proxy, https_proxy or http_proxy must name it";
            return Ok(Some(format!("{problem}; given up after {failures} attempts; {way}")));
        }
        let wait = asked_wait.unwrap_or(patience.pause * 2u32.pow(failures.min(6) - 1)).min(LONGEST_WAIT);
        tell(Event::Retrying { file: piece.name, problem: &problem, wait });
        std::thread::sleep(wait);
    }
}

fn length(path: &Path) -> u64 {
    path.metadata().map_or(0, |m| m.len())
}
