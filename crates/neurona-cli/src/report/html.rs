//! Text and files inside a page.

use serde_json::Value;

/// Text as it may stand anywhere in a page. Names of classes and files are the user's, and may hold anything.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Control characters have no place in a page.
            c if c.is_control() && !"\n\t".contains(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Data for the page's script. Inside a script element nothing may look like its end.
pub fn json(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// A PNG file as an address that holds it.
pub fn png_address(file: &[u8]) -> String {
    format!("data:image/png;base64,{}", base64(file))
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let at = |i: usize| *three.get(i).unwrap_or(&0) as usize;
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for i in 0..4 {
            match i <= three.len() {
                true => out.push(LETTERS[bits >> (18 - 6 * i) & 63] as char),
                false => out.push('='),
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_every_length() {
        let cases =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE=")];
        for (text, coded) in cases {
            assert_eq!(base64(text.as_bytes()), coded);
        }
    }

    #[test]
    fn nothing_of_the_users_is_markup() {
        assert_eq!(escape("<b a='1'>\"&\u{7}"), "&lt;b a=&#39;1&#39;&gt;&quot;&amp;\u{fffd}");
        assert_eq!(json(&serde_json::json!("</script>")), "\"\\u003c/script\\u003e\"");
    }
}
