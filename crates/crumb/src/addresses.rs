//! Addresses to listen at, and URLs typed in their place.

use std::net::SocketAddr;

/// An address with its port, for `value_parser`.
pub fn listen_address(text: &str) -> Result<SocketAddr, measure::ValueError> {
    refuse_url(text)?;
    text.parse()
        .map_err(|_| "expected ADDRESS:PORT such as 127.0.0.1:8008, or [::1]:0 for a free port".into())
}

/// Refuses a URL where an address is wanted.
pub fn refuse_url(text: &str) -> Result<(), measure::ValueError> {
    match text.split_once("://") {
        Some((_, rest)) => {
            Err(format!("write ADDRESS:PORT without a scheme: {}", rest.split('/').next().unwrap_or(rest))
                .into())
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_where_an_address_is_wanted_is_answered_with_the_address() {
        let wrong = listen_address("http://127.0.0.1:8008/").unwrap_err().to_string();
        assert_eq!(wrong, "write ADDRESS:PORT without a scheme: 127.0.0.1:8008");
        assert!(listen_address("127.0.0.1").unwrap_err().to_string().contains("127.0.0.1:8008"));
        assert!(listen_address("[::1]:0").is_ok());
    }
}
