//! The bytes of a pickle, read from front to back.

/// A place in a pickle.
pub struct Input<'a> {
    bytes: &'a [u8],
    /// How far it has been read.
    pub at: usize,
}

/// What is wrong, without the place.
pub type Problem = String;

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Input { bytes, at: 0 }
    }

    pub fn rest(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next `n` bytes. Nothing is set aside for them, so a length that lies costs nothing.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], Problem> {
        let end = self.at.checked_add(n).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or_else(|| format!("it was cut off: {n} bytes should follow, there are {}", self.rest()))?;
        let part = &self.bytes[self.at..end];
        self.at = end;
        Ok(part)
    }

    pub fn byte(&mut self) -> Result<u8, Problem> {
        Ok(self.array::<1>()?[0])
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// As many bytes as a number of `N` bytes before them says.
    pub fn counted<const N: usize>(&mut self) -> Result<&'a [u8], Problem> {
        let mut wide = [0; 8];
        wide[..N].copy_from_slice(&self.array::<N>()?);
        let n = u64::from_le_bytes(wide);
        self.take(usize::try_from(n).unwrap_or(usize::MAX))
    }

    /// Up to the next line end, which is left out.
    pub fn line(&mut self) -> Result<&'a [u8], Problem> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|b| *b == b'\n').ok_or("it was cut off within a line")?;
        self.at += end + 1;
        Ok(&rest[..end])
    }

    pub fn text_line(&mut self) -> Result<&'a str, Problem> {
        utf8(self.line()?)
    }

    /// A number in decimal digits.
    pub fn number<T: std::str::FromStr>(&mut self) -> Result<T, Problem> {
        let line = self.text_line()?;
        line.trim().parse().map_err(|_| format!("{line:?} is not a number that fits"))
    }
}

pub fn utf8(bytes: &[u8]) -> Result<&str, Problem> {
    std::str::from_utf8(bytes).map_err(|e| format!("its text is not UTF-8: {e}"))
}

/// A string as Python 2 prints it: in quotes, with backslashes.
pub fn quoted(line: &[u8]) -> Result<Vec<u8>, Problem> {
    let line = line.trim_ascii();
    let inner = match line {
        [first @ (b'\'' | b'"'), inner @ .., last] if first == last => inner,
        _ => return Err("its string is not in quotes".into()),
    };
    let mut out = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'\\' {
            out.push(*byte);
            continue;
        }
        let [escape, after @ ..] = rest else { return Err("its string ends in a backslash".into()) };
        rest = after;
        match escape {
            b'\\' | b'\'' | b'"' => out.push(*escape),
            b'\n' => {}
            b'a' => out.push(7),
            b'b' => out.push(8),
            b't' => out.push(b'\t'),
            b'n' => out.push(b'\n'),
            b'v' => out.push(11),
            b'f' => out.push(12),
            b'r' => out.push(b'\r'),
            b'x' => {
                let code = digits(rest, 2, 16).ok_or("its string has a broken \\x")?;
                rest = &rest[2..];
                out.push(code as u8);
            }
            b'0'..=b'7' => {
                let n = after.iter().take(2).take_while(|b| (b'0'..=b'7').contains(b)).count();
                let more = digits(after, n, 8).unwrap_or(0);
                rest = &after[n..];
                out.push(((u32::from(escape - b'0') << (3 * n)) + more) as u8);
            }
            // As Python does: what is no escape stays.
            _ => out.extend([b'\\', *escape]),
        }
    }
    Ok(out)
}

/// Text in Latin-1 with `\u` and `\U` for everything else.
pub fn raw_unicode(line: &[u8]) -> Result<String, Problem> {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let [byte, after @ ..] = rest {
        let wide = match after {
            [b'u', ..] if *byte == b'\\' => 4,
            [b'U', ..] if *byte == b'\\' => 8,
            _ => {
                out.push(char::from(*byte));
                rest = after;
                continue;
            }
        };
        let code = digits(&after[1..], wide, 16).and_then(char::from_u32).ok_or("its text has a broken \\u")?;
        out.push(code);
        rest = &after[1 + wide..];
    }
    Ok(out)
}

fn digits(bytes: &[u8], n: usize, radix: u32) -> Option<u32> {
    let digits = bytes.get(..n)?;
    digits.iter().try_fold(0u32, |sum, b| sum.checked_mul(radix)?.checked_add(char::from(*b).to_digit(radix)?))
}
