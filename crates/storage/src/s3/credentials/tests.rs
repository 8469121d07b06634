//! Credentials from files in a folder, and from a server on loopback.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;

use super::*;

/// The variables of a user whose home is `home`.
struct User(HashMap<String, String>);

impl User {
    fn new(home: &Path, variables: &[(&str, &str)]) -> Self {
        let mut all: HashMap<String, String> =
            variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        all.insert("HOME".to_string(), home.display().to_string());
        Self(all)
    }

    fn find(&self) -> Result<(Found, Secrets), String> {
        let secrets = Secrets::new([]);
        let variables = |name: &str| self.0.get(name).cloned();
        find(&variables, &secrets).map(|found| (found, secrets)).map_err(|e| e.to_string())
    }

    async fn key(&self) -> Result<String, String> {
        let (found, secrets) = self.find()?;
        let provider = found.provider.ok_or("none")?;
        let credential = provider.get_credential().await.map_err(|e| e.to_string())?;
        let hidden = secrets.hide(&format!("{} {}", credential.key_id, credential.secret_key));
        assert_eq!(hidden, "[hidden] [hidden]");
        Ok(credential.key_id.clone())
    }
}

fn home(config: &str, credentials: &str) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(home.path().join(".aws/sso/cache")).unwrap();
    std::fs::write(home.path().join(".aws/config"), config).unwrap();
    std::fs::write(home.path().join(".aws/credentials"), credentials).unwrap();
    home
}

/// Serves `answer` to every request, and returns its address.
fn serve(answer: impl Fn(&str) -> (u16, String) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = vec![0; 8192];
            let read = stream.read(&mut request).unwrap();
            let (status, body) = answer(&String::from_utf8_lossy(&request[..read]));
            let head =
                format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
    });
    address
}

#[tokio::test]
async fn keys_of_a_profile_are_used_unless_the_environment_has_some() {
    let home = home(
        "[profile dev]\nregion = eu-north-1\nendpoint_url = http://x\n[profile empty]\nregion = x\n",
        "[default]\naws_access_key_id = AKIADEFAULT\naws_secret_access_key = secret1\n[dev]\naws_access_key_id = AKIADEV\n\
         aws_secret_access_key = secret2\n",
    );
    assert_eq!(User::new(home.path(), &[]).key().await.unwrap(), "AKIADEFAULT");
    let dev = User::new(home.path(), &[("AWS_PROFILE", "dev")]);
    assert_eq!(dev.key().await.unwrap(), "AKIADEV");
    let (found, _) = dev.find().unwrap();
    assert_eq!((found.region.as_deref(), found.endpoint.as_deref()), (Some("eu-north-1"), Some("http://x")));
    let keys = [("AWS_PROFILE", "dev"), ("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")];
    assert!(User::new(home.path(), &keys).find().unwrap().0.provider.is_none());
    for (name, why) in [("other", "found no profile other"), ("empty", "has no credentials")] {
        let error = User::new(home.path(), &[("AWS_PROFILE", name)]).key().await.unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

#[tokio::test]
async fn program_prints_credentials() {
    let json =
        r#"{"Version":1,"AccessKeyId":"AKIAPROCESS","SecretAccessKey":"secret3","SessionToken":"token3"}"#;
    let config = format!(
        "[profile p]\ncredential_process = echo '{json}'\n[profile q]\ncredential_process = echo secret4; exit 3\n"
    );
    let home = home(&config, "");
    assert_eq!(User::new(home.path(), &[("AWS_PROFILE", "p")]).key().await.unwrap(), "AKIAPROCESS");
    let error = User::new(home.path(), &[("AWS_PROFILE", "q")]).key().await.unwrap_err();
    assert!(error.contains("failed") && !error.contains("secret4"), "{error}");
}

#[tokio::test]
async fn sso_session_is_used_until_it_expires() {
    let config = "[profile s]\nsso_session = main\nsso_account_id = 12\nsso_role_name = reader\n[sso-session main]\n\
                  sso_region = eu-west-1\nsso_start_url = https://example.test/start/\n";
    let home = home(config, "");
    let portal = serve(|request| {
        assert!(
            request.starts_with("GET /federation/credentials?account_id=12&role_name=reader "),
            "{request}"
        );
        if !request.contains("x-amz-sso_bearer_token: bearer-1") {
            return (401, String::new());
        }
        let keys = r#"{"accessKeyId":"ASIASSO","secretAccessKey":"secret5","sessionToken":"token5","expiration":99999999999000}"#;
        (200, format!(r#"{{"roleCredentials":{keys}}}"#))
    });
    let user = User::new(home.path(), &[("AWS_PROFILE", "s"), ("AWS_ENDPOINT_URL_SSO", &portal)]);
    let login = |token: &str, expires: &str| {
        let cached = format!(
            r#"{{"startUrl":"https://example.test/start","accessToken":"{token}","expiresAt":"{expires}"}}"#
        );
        std::fs::write(home.path().join(".aws/sso/cache/x.json"), cached).unwrap();
    };
    assert!(user.key().await.unwrap_err().contains("aws sso login --profile s"));
    login("bearer-1", "2020-01-01T00:00:00Z");
    assert!(user.key().await.unwrap_err().contains("aws sso login --profile s"));
    login("bearer-1", "2999-01-01T00:00:00Z");
    assert_eq!(user.key().await.unwrap(), "ASIASSO");
    login("bearer-2", "2999-01-01T00:00:00Z");
    let error = user.key().await.unwrap_err();
    assert!(error.contains("401") && !error.contains("bearer-2"), "{error}");
}

#[tokio::test]
async fn roles_are_assumed_with_keys_and_with_tokens() {
    let home = home(
        "[profile r]\nrole_arn = arn:r\nsource_profile = base\nregion = eu-west-1\n[profile w]\nrole_arn = arn:w\n\
         web_identity_token_file = TOKEN\n[profile loop]\nrole_arn = arn:l\nsource_profile = other\n[profile other]\n\
         role_arn = arn:o\nsource_profile = loop\n[profile none]\nrole_arn = arn:n\n",
        "[base]\naws_access_key_id = AKIABASE\naws_secret_access_key = secret6\n",
    );
    let token = home.path().join("token");
    std::fs::write(&token, "jwt-1\n").unwrap();
    let config = home.path().join(".aws/config");
    let text = std::fs::read_to_string(&config).unwrap().replace("TOKEN", &token.display().to_string());
    std::fs::write(&config, text).unwrap();
    let sts = serve(|request| {
        let by_keys = request.contains("Action=AssumeRole&") && request.contains("Credential=AKIABASE/");
        let by_token = request.contains("Action=AssumeRoleWithWebIdentity&")
            && request.contains("WebIdentityToken=jwt-1");
        if !by_keys && !by_token {
            return (403, "<Error><Code>AccessDenied</Code></Error>".to_string());
        }
        let keys = "<AccessKeyId>ASIAROLE</AccessKeyId><SecretAccessKey>secret7</SecretAccessKey>\
                    <SessionToken>token7</SessionToken><Expiration>2999-01-01T00:00:00Z</Expiration>";
        (200, format!("<Response><Credentials>{keys}</Credentials></Response>"))
    });
    let key = async |profile: &str| {
        User::new(home.path(), &[("AWS_PROFILE", profile), ("AWS_ENDPOINT_URL_STS", &sts)]).key().await
    };
    assert_eq!(key("r").await.unwrap(), "ASIAROLE");
    assert_eq!(key("w").await.unwrap(), "ASIAROLE");
    std::fs::write(&token, "jwt-2\n").unwrap();
    let error = key("w").await.unwrap_err();
    assert!(error.contains("arn:w is refused (AccessDenied)") && !error.contains("jwt-2"), "{error}");
    assert!(key("loop").await.unwrap_err().contains("refers to itself"));
    assert!(key("none").await.unwrap_err().contains("set source_profile"));
}

#[tokio::test]
async fn role_of_the_instance_comes_last() {
    let home = home("", "");
    let metadata = serve(|request| match request.lines().next().unwrap_or_default() {
        line if line.starts_with("PUT /latest/api/token") => (200, "t".to_string()),
        line if line.contains("security-credentials/ ") => (200, "role-1\n".to_string()),
        line if line.contains("security-credentials/role-1 ") => {
            let keys = r#"{"AccessKeyId":"ASIAROLE1","SecretAccessKey":"secret8","Token":"token8","Expiration":"2999-01-01T00:00:00Z"}"#;
            (200, keys.to_string())
        }
        line => (404, line.to_string()),
    });
    let endpoint = ("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.as_str());
    assert_eq!(User::new(home.path(), &[endpoint]).key().await.unwrap(), "ASIAROLE1");
    let disabled = User::new(home.path(), &[endpoint, ("AWS_EC2_METADATA_DISABLED", "true")]);
    assert!(disabled.key().await.unwrap_err().contains("found no credentials"));
    let identity = [endpoint, ("AWS_WEB_IDENTITY_TOKEN_FILE", "x"), ("AWS_ROLE_ARN", "y")];
    assert!(User::new(home.path(), &identity).find().unwrap().0.provider.is_none());
}
