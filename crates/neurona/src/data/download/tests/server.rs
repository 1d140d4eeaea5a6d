//! A server that does as a test tells it.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What was asked: the request line and the headers, in lower case.
#[derive(Clone, Debug)]
pub struct Asked(pub Vec<String>);

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.0.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// The first byte that is wanted.
    pub fn from(&self) -> Option<usize> {
        self.header("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

pub struct Server {
    pub url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    /// Answers each connection's one request; the handler gets the request's number, from 0.
    pub fn start(answer: impl Fn(usize, &Asked, &mut TcpStream) + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (list, answer) = (asked.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let mut stream = stream.unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                let lines = BufReader::new(&stream).lines().map_while(Result::ok);
                let request = Asked(lines.take_while(|line| !line.is_empty()).map(|l| l.to_lowercase()).collect());
                list.lock().unwrap().push(request.clone());
                // Apart, so that an answer that stalls does not keep others waiting.
                let answer = answer.clone();
                std::thread::spawn(move || answer(number, &request, &mut stream));
            }
        });
        Server { url, asked }
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

/// Sends what a good server would.
pub fn serve(body: &[u8], asked: &Asked, to: &mut TcpStream) {
    match asked.from() {
        Some(from) => {
            let range = format!("Content-Range: bytes {from}-{}/{}\r\n", body.len() - 1, body.len());
            send("206 Partial Content", &range, body.len() - from, &body[from..], to);
        }
        None => send("200 OK", "", body.len(), body, to),
    }
}

/// Sends any answer; `length` is what it claims.
pub fn send(status: &str, headers: &str, length: usize, body: &[u8], to: &mut TcpStream) {
    let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n");
    // The other side may hang up at any moment; that is part of the tests.
    let _ = to.write_all(head.as_bytes()).and_then(|()| to.write_all(body));
}

pub fn refuse(status: &str, to: &mut TcpStream) {
    send(status, "", 0, b"", to);
}
