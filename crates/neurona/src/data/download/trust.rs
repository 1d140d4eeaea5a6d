//! Which certificates are trusted: Mozilla's, which are compiled in, or those in the file that `SSL_CERT_FILE` names,
//! as for other programs. Networks whose proxy opens TLS have a certificate of their own.

use crate::{Error, Result};
use std::path::PathBuf;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

pub(super) fn config() -> Result<TlsConfig> {
    let file = std::env::var_os("SSL_CERT_FILE").filter(|path| !path.is_empty()).map(PathBuf::from);
    let roots = file.map_or(Ok(RootCerts::WebPki), from_file)?;
    Ok(TlsConfig::builder().root_certs(roots).build())
}

fn from_file(path: PathBuf) -> Result<RootCerts> {
    let pem = std::fs::read(&path).map_err(|source| Error::File { action: "read", path: path.clone(), source })?;
    let mut certificates = Vec::new();
    for item in parse_pem(&pem) {
        match item {
            Ok(PemItem::Certificate(certificate)) => certificates.push(certificate),
            Ok(_) => {}
            Err(e) => return Err(Error::Format { path, problem: format!("SSL_CERT_FILE names it: {e}") }),
        }
    }
    match certificates.is_empty() {
        true => Err(Error::Format { path, problem: "SSL_CERT_FILE names it, but it holds no certificate".into() }),
        false => Ok(RootCerts::from(certificates)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_certificates() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = || file.path().to_path_buf();
        assert!(from_file(path()).unwrap_err().to_string().contains("holds no certificate"));
        std::fs::write(path(), "-----BEGIN CERTIFICATE-----\nAAEC\n-----END CERTIFICATE-----\n").unwrap();
        assert!(matches!(from_file(path()).unwrap(), RootCerts::Specific(all) if all.len() == 1));
        std::fs::write(path(), "-----BEGIN CERTIFICATE-----\nAA").unwrap();
        assert!(from_file(path()).unwrap_err().to_string().contains("SSL_CERT_FILE"));
        assert!(matches!(from_file("/no/such/file".into()), Err(Error::File { .. })));
    }
}
