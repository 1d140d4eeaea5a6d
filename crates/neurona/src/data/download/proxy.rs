//! The proxy that the environment names for an address, as other programs read it: `https_proxy` or `http_proxy`
//! by the address's scheme, else `all_proxy`; `no_proxy` lists hosts that need none. Capitals do as well.

use crate::{Error, Result};
use ureq::Proxy;

pub(super) fn for_url(url: &str) -> Result<Option<Proxy>> {
    choose(url, |name| std::env::var(name).ok())
}

fn choose(url: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Option<Proxy>> {
    let either = |name: &str| {
        let found = variable(name).map(|value| (name.to_string(), value));
        let found = found.or_else(|| variable(&name.to_uppercase()).map(|value| (name.to_uppercase(), value)));
        found.filter(|(_, value)| !value.trim().is_empty())
    };
    let scheme = if url.starts_with("https:") { "https_proxy" } else { "http_proxy" };
    let Some((name, value)) = either(scheme).or_else(|| either("all_proxy")) else { return Ok(None) };
    let wrong = |e: ureq::Error| Error::Argument(format!("{name}={value} names no usable proxy: {e}"));
    let named = Proxy::new(value.trim()).map_err(wrong)?;
    let mut proxy = Proxy::builder(named.protocol()).host(named.host()).port(named.port());
    if let Some(user) = named.username() {
        proxy = proxy.username(user);
    }
    if let Some(password) = named.password() {
        proxy = proxy.password(password);
    }
    let spared = either("no_proxy").map(|(_, hosts)| hosts).unwrap_or_default();
    for host in spared.split(',').map(str::trim).filter(|host| !host.is_empty()) {
        proxy = proxy.no_proxy(host);
    }
    proxy.build().map(Some).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(url: &str, variables: &[(&str, &str)]) -> Option<String> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string());
        let proxy = choose(url, find).unwrap()?;
        let uri = url.parse().unwrap();
        (!proxy.is_no_proxy(&uri)).then(|| format!("{}:{}", proxy.host(), proxy.port()))
    }

    #[test]
    fn the_scheme_chooses_and_no_proxy_spares() {
        let both = [("HTTPS_PROXY", "http://secure:1"), ("http_proxy", "plain:2"), ("NO_PROXY", "near.org, .local")];
        assert_eq!(chosen("https://far.org/x", &both).as_deref(), Some("secure:1"));
        assert_eq!(chosen("http://far.org/x", &both).as_deref(), Some("plain:2"));
        assert_eq!(chosen("http://near.org/x", &both), None);
        assert_eq!(chosen("https://a.local/x", &both), None);
        assert_eq!(chosen("https://far.org/x", &[("ALL_PROXY", "http://any:3")]).as_deref(), Some("any:3"));
        assert_eq!(chosen("https://far.org/x", &[("https_proxy", "")]), None);
        assert_eq!(chosen("https://far.org/x", &[]), None);
    }

    #[test]
    fn a_proxy_that_cannot_be_is_named() {
        let find = |name: &str| (name == "http_proxy").then(|| "ftp://x".to_string());
        let error = choose("http://far.org", find).unwrap_err().to_string();
        assert!(error.starts_with("http_proxy=ftp://x names no usable proxy"), "{error}");
    }
}
