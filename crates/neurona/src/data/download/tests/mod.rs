//! Servers that break off, lie and stall; archives and folders that are not what they should be.

mod archives;
mod server;

use super::set::Piece;
use super::*;
use crate::Error;
use server::{Asked, Server, refuse, send, serve};
use std::io::Write;
use std::net::TcpStream;
use std::sync::OnceLock;
use tempfile::TempDir;

/// What the file of the test set holds.
fn body() -> &'static [u8] {
    static BODY: OnceLock<Vec<u8>> = OnceLock::new();
    BODY.get_or_init(|| (0..200_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect())
}

fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

fn piece(name: &'static str, content: &[u8]) -> Piece {
    let md5 = check::md5(content).unwrap();
    Piece { name, size: content.len() as u64, md5: Some(leak(md5).as_str()), unpacked: None }
}

/// A set of one file.
fn set(mirrors: &'static [&'static str]) -> &'static Set {
    let files = leak([piece("file.bin", body())]).as_slice();
    leak(Set { name: "tiny", title: "Tiny-Set", folder: "tiny-files", images: [1, 1], mirrors, archive: None, files })
}

struct Trial {
    data: TempDir,
    events: Vec<String>,
    result: Result<Done>,
}

impl Trial {
    fn installed(&self) -> bool {
        std::fs::read(self.data.path().join("tiny-files/file.bin")).is_ok_and(|bytes| bytes == body())
    }

    fn problem(&self) -> String {
        self.result.as_ref().unwrap_err().to_string()
    }

    /// Nothing among the data sets, not even a part.
    fn nothing_installed(&self) -> bool {
        !self.data.path().join("tiny-files").exists()
    }
}

fn quick(download: Download) -> Download {
    Download {
        patience: Patience { attempts: 3, pause: Duration::from_millis(2), stall: Duration::from_millis(250) },
        ..download
    }
}

fn run_in(data: TempDir, set: &'static Set, from: Option<&str>) -> Trial {
    let mut download = quick(Download::to(set, data.path()));
    download.from = from.map(String::from);
    let mut events = Vec::new();
    let result = download.run(&mut |event| events.push(format!("{event:?}")));
    Trial { data, events, result }
}

fn run(from: &str) -> Trial {
    run_in(TempDir::new().unwrap(), set(&[]), Some(from))
}

fn with(answer: impl Fn(usize, &Asked, &mut TcpStream) + Send + Sync + 'static) -> (Trial, Vec<Asked>) {
    let server = Server::start(answer);
    let trial = run(&server.url);
    (trial, server.asked())
}

#[test]
fn a_good_server_is_asked_once_and_never_again() {
    let server = Server::start(|_, asked, to| serve(body(), asked, to));
    let trial = run(&format!("{}/", server.url));
    assert_eq!(*trial.result.as_ref().unwrap(), Done::Fetched);
    assert!(trial.installed() && !trial.data.path().join(".partial").exists());
    assert!(trial.events.iter().any(|e| e.contains("have: 200000, total: Some(200000)")), "{:?}", trial.events);
    assert!(server.asked()[0].0[0].starts_with("get /file.bin "));

    let again = run_in(trial.data, set(&[]), Some(&server.url));
    assert_eq!((*again.result.as_ref().unwrap(), server.asked().len()), (Done::AlreadyThere, 1));
    let mut forced = quick(Download::to(set(&[]), again.data.path())).force(true);
    forced.from = Some(format!("{}/file.bin", server.url));
    assert_eq!((forced.run(&mut |_| {}).unwrap(), server.asked().len()), (Done::Fetched, 2));
}

#[test]
fn a_damaged_file_is_fetched_again() {
    let data = TempDir::new().unwrap();
    std::fs::create_dir(data.path().join("tiny-files")).unwrap();
    let mut damaged = body().to_vec();
    damaged[7] ^= 1;
    std::fs::write(data.path().join("tiny-files/file.bin"), damaged).unwrap();
    let server = Server::start(|_, asked, to| serve(body(), asked, to));
    assert_eq!(set(&[]).state(data.path()), State::Complete, "sizes alone do not tell");
    assert_eq!(set(&[]).verify(data.path()).unwrap(), State::Incomplete(vec!["file.bin"]));
    assert!(run_in(data, set(&[]), Some(&server.url)).installed());
}

#[test]
fn a_broken_connection_goes_on_where_it_broke_off() {
    let (trial, asked) = with(|n, asked, to| match n {
        0 => send("200 OK", "ETag: \"v1\"\r\n", body().len(), &body()[..70_000], to),
        1 => {
            let range = format!("Content-Range: bytes 70000-199999/{}\r\n", body().len());
            send("206 Partial Content", &range, 130_000, &body()[70_000..150_000], to);
        }
        _ => serve(body(), asked, to),
    });
    assert!(trial.installed(), "{:?}", trial.result);
    assert_eq!(asked.iter().map(|a| a.from()).collect::<Vec<_>>(), [None, Some(70_000), Some(150_000)]);
    assert_eq!(asked[2].header("if-range"), Some("\"v1\""));
}

#[test]
fn the_next_call_goes_on_too() {
    let first = Server::start(|n, _, to| match n {
        0 => send("200 OK", "Last-Modified: Thu, 04 Jun 2009 00:00:00 GMT\r\n", 200_000, &body()[..90_000], to),
        _ => refuse("503 Service Unavailable", to),
    });
    let trial = run(&first.url);
    assert!(trial.problem().contains("503") && trial.nothing_installed(), "{}", trial.problem());
    let second = Server::start(|_, asked, to| serve(body(), asked, to));
    let trial = run_in(trial.data, set(&[]), Some(&second.url));
    assert!(trial.installed());
    assert_eq!(second.asked()[0].from(), Some(90_000));
    assert_eq!(second.asked()[0].header("if-range"), Some("thu, 04 jun 2009 00:00:00 gmt"));
}

#[test]
fn servers_without_ranges_start_anew() {
    let (trial, asked) = with(|n, _, to| match n {
        0 => send("200 OK", "", body().len(), &body()[..70_000], to),
        _ => send("200 OK", "", body().len(), body(), to),
    });
    assert!(trial.installed() && asked.len() == 2);
}

#[test]
fn a_server_that_always_breaks_off_at_one_place_is_given_up() {
    let (trial, asked) = with(|_, _, to| send("200 OK", "", body().len(), &body()[..70_000], to));
    assert!(trial.problem().contains("given up after 3 attempts") && trial.nothing_installed(), "{}", trial.problem());
    assert_eq!(asked.len(), 3);
}

#[test]
fn parts_of_two_versions_are_noticed() {
    let (trial, asked) = with(|n, asked, to| match n {
        0 => send("200 OK", "", body().len(), &vec![7; 70_000], to),
        _ => serve(body(), asked, to),
    });
    assert!(trial.installed(), "{:?}", trial.result);
    assert!(trial.events.iter().any(|e| e.contains("do not belong together")), "{:?}", trial.events);
    assert_eq!(asked.iter().map(|a| a.from()).collect::<Vec<_>>(), [None, Some(70_000), None]);
}

#[test]
fn an_unsatisfiable_or_another_range_starts_anew() {
    for answer in ["416 Range Not Satisfiable", "206 Partial Content"] {
        let (trial, _) = with(move |n, asked, to| match n {
            0 => send("200 OK", "", body().len(), &body()[..70_000], to),
            1 => send(answer, "Content-Range: bytes 5-9/10\r\n", 5, b"wrong", to),
            _ => serve(body(), asked, to),
        });
        assert!(trial.installed(), "{answer}: {:?}", trial.result);
    }
}

#[test]
fn a_file_that_was_whole_already_is_taken() {
    let data = TempDir::new().unwrap();
    let aside = data.path().join(".partial/tiny");
    std::fs::create_dir_all(&aside).unwrap();
    std::fs::write(aside.join("file.bin.part"), body()).unwrap();
    let server = Server::start(|_, _, to| {
        send("416 Range Not Satisfiable", "Content-Range: bytes */200000\r\n", 0, b"", to);
    });
    assert!(run_in(data, set(&[]), Some(&server.url)).installed());
}

#[test]
fn lengths_that_are_lies() {
    let (trial, _) = with(|_, _, to| send("200 OK", "", 300_000, body(), to));
    assert!(trial.installed(), "too long: {:?}", trial.result);
    let (trial, asked) = with(|n, asked, to| match n {
        0 => send("200 OK", "", 60_000, body(), to),
        _ => serve(body(), asked, to),
    });
    assert!(trial.installed() && asked[1].from() == Some(60_000), "too short: {:?}", trial.result);
    let (trial, _) = with(|_, _, to| send("200 OK", "", usize::MAX / 2, body(), to));
    assert!(trial.problem().contains("another file"), "{}", trial.problem());
    let (trial, asked) = with(|n, asked, to| match n {
        0 => to.write_all(b"HTTP/1.1 200 OK\r\n\r\n").and_then(|()| to.write_all(&body()[..90_000])).unwrap(),
        _ => serve(body(), asked, to),
    });
    assert!(trial.installed() && asked[1].from() == Some(90_000), "none at all: {:?}", trial.result);
}

#[test]
fn a_body_without_end_is_cut_off() {
    let (trial, asked) = with(|_, _, to| {
        let block = [0; 64 << 10];
        let mut alive = to.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").is_ok();
        while alive {
            alive = to.write_all(&block).is_ok();
        }
    });
    assert!(trial.problem().contains("more bytes than the file has"), "{}", trial.problem());
    assert_eq!(asked.len(), 3);
}

#[test]
fn stalls_are_noticed() {
    let stall = |to: &mut TcpStream| {
        send("200 OK", "", body().len(), &body()[..70_000], to);
        std::thread::sleep(Duration::from_millis(600));
    };
    let (trial, _) = with(move |n, asked, to| if n == 0 { stall(to) } else { serve(body(), asked, to) });
    assert!(trial.installed(), "{:?}", trial.result);
    assert!(trial.events.iter().any(|e| e.contains("no byte came for 0.25 seconds")), "{:?}", trial.events);
    let (trial, _) = with(|_, _, _| std::thread::sleep(Duration::from_millis(600)));
    assert!(trial.problem().contains("no byte came for 0.25 seconds"), "{}", trial.problem());
}

#[test]
fn wrong_bytes_never_arrive() {
    let (trial, asked) = with(|_, _, to| send("200 OK", "", body().len(), &vec![7; body().len()], to));
    assert!(trial.problem().contains("not the published file: its MD5 is "), "{}", trial.problem());
    assert!(trial.nothing_installed() && !trial.data.path().join(".partial/tiny/file.bin.part").exists());
    assert_eq!(asked.len(), 1);
    let (trial, _) = with(|_, _, to| send("200 OK", "", 20, b"<html>Log in!</html>", to));
    assert!(trial.problem().contains("not the published file: it has 20 bytes"), "{}", trial.problem());
    let (trial, _) = with(|_, _, to| to.write_all(b"SSH-2.0-OpenSSH_9.6\r\n").unwrap());
    assert!(trial.problem().contains("given up"), "{}", trial.problem());
    assert!(trial.problem().contains("https_proxy") && trial.problem().contains("--from"), "{}", trial.problem());
}

#[test]
fn redirects_are_followed_but_not_forever() {
    let good = Server::start(|_, asked, to| serve(body(), asked, to));
    let target = format!("Location: {}/file.bin\r\n", good.url);
    let (trial, _) = with(move |_, _, to| send("302 Found", &target, 0, b"", to));
    assert!(trial.installed(), "{:?}", trial.result);
    let (trial, asked) = with(|_, _, to| send("302 Found", "Location: /file.bin\r\n", 0, b"", to));
    assert!(trial.problem().contains("redirects in a circle") && asked.len() < 20, "{}", trial.problem());
}

#[test]
fn refusals_are_final_and_hiccups_are_not() {
    let (trial, asked) = with(|_, _, to| refuse("404 Not Found", to));
    assert!(trial.problem().contains("404 Not Found; a mirror or a folder can be given"), "{}", trial.problem());
    assert_eq!(asked.len(), 1);
    let (trial, asked) = with(|n, asked, to| match n {
        0 => refuse("500 Internal Server Error", to),
        1 => send("429 Too Many Requests", "Retry-After: 0\r\n", 0, b"", to),
        _ => serve(body(), asked, to),
    });
    assert!(trial.installed() && asked.len() == 3);
}

#[test]
fn the_next_mirror_is_taken() {
    let bad = Server::start(|_, _, to| refuse("403 Forbidden", to));
    let good = Server::start(|_, asked, to| serve(body(), asked, to));
    let mirror = |server: &Server| leak(format!("{}/", server.url)).as_str();
    let both = set(leak([mirror(&bad), mirror(&good)]).as_slice());
    assert!(run_in(TempDir::new().unwrap(), both, None).installed());
    let none = run_in(TempDir::new().unwrap(), set(leak([mirror(&bad), mirror(&bad)]).as_slice()), None);
    assert_eq!(none.problem().matches("403 Forbidden").count(), 2, "{}", none.problem());
}

#[test]
fn nobody_there() {
    let trial = run("http://127.0.0.1:1");
    assert!(trial.problem().starts_with("cannot download http://127.0.0.1:1/file.bin: "), "{}", trial.problem());
}

#[test]
fn two_at_a_time_do_not_meet() {
    let data = TempDir::new().unwrap();
    let aside = data.path().join(".partial/tiny");
    std::fs::create_dir_all(&aside).unwrap();
    let held = lock(&aside).unwrap();
    let trial = run_in(data, set(&[]), Some("http://127.0.0.1:1"));
    assert!(trial.problem().contains("another download of this set is running"), "{}", trial.problem());
    drop(held);
    assert!(lock(&aside).is_ok());
}

#[test]
fn a_full_disk_says_that_nothing_is_lost() {
    let full = io::Error::from(io::ErrorKind::StorageFull);
    let text = disk("write", Path::new("x"), full).to_string();
    assert!(text.starts_with("cannot write x: ") && text.contains("what has come is kept"), "{text}");
}

#[test]
fn a_data_folder_that_cannot_be_is_named() {
    let data = TempDir::new().unwrap();
    let file = data.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = Download::to(set(&[]), &file).from("http://127.0.0.1:1").run(&mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::File { action: "make the folder", .. }), "{error}");
}

#[test]
fn what_a_killed_call_left_is_not_taken_for_a_whole_file() {
    let data = TempDir::new().unwrap();
    let ready = data.path().join(".partial/tiny/ready");
    std::fs::create_dir_all(&ready).unwrap();
    std::fs::write(ready.join("file.bin"), &body()[..100]).unwrap();
    let server = Server::start(|_, asked, to| serve(body(), asked, to));
    assert!(run_in(data, set(&[]), Some(&server.url)).installed());

    let data = TempDir::new().unwrap();
    let ready = data.path().join(".partial/tiny/ready");
    std::fs::create_dir_all(&ready).unwrap();
    std::fs::write(ready.join("file.bin"), body()).unwrap();
    assert!(run_in(data, set(&[]), Some("http://127.0.0.1:1")).installed(), "but a whole one is");
}
