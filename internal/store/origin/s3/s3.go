// Package s3 reads a dataset from a bucket of S3 or of anything that speaks its protocol.
//
// The SDK supplies configuration, credentials and listing; the one hot request, GET, is made here
// over net/http so that a body is read straight into the caller's memory. An object's version is a
// hash of its ETag, checked on every answer. A body cut short is resumed with Range and If-Match; a
// whole object is compared with the CRC that the server has of it.
// Credentials come from the SDK's usual places and are read again when they are refused, without
// a restart. No secret is ever part of an error or of URL. It retries nothing but a cut body and
// refused credentials: retrying is origin.Resilient's.
package s3

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	"belady/internal/store/origin"
)

// Config says which bucket to read and how. Credentials are never part of it.
type Config struct {
	Bucket    string
	Prefix    string // objects below "Prefix/"; empty: the whole bucket
	Endpoint  string // http(s)://HOST[:PORT]; empty: the SDK's (AWS_ENDPOINT_URL_S3, AWS itself)
	Region    string // empty: the SDK's, else us-east-1
	Profile   string // of the shared configuration files; empty: the SDK's
	PathStyle bool   // http://HOST/BUCKET/KEY rather than http://BUCKET.HOST/KEY
	Anonymous bool   // requests are not signed
	// MaxIdleConns is how many connections are kept open between reads; 0: 512.
	MaxIdleConns int
}

// ParseURL reads s3://BUCKET/PREFIX?endpoint=http://HOST:PORT&region=R&profile=P&path_style=true&
// anonymous=true. Path style is the default with an endpoint: few other servers know the rest.
func ParseURL(u *url.URL) (Config, error) {
	p := origin.NewParams(u)
	c := Config{
		Bucket:    u.Host,
		Prefix:    strings.Trim(u.Path, "/"),
		Endpoint:  p.String("endpoint", ""),
		Region:    p.String("region", ""),
		Profile:   p.String("profile", ""),
		Anonymous: p.Bool("anonymous", false),
	}
	c.PathStyle = p.Bool("path_style", c.Endpoint != "")
	err := p.Err()
	switch {
	case err != nil:
	case u.User != nil:
		err = errors.New("credentials do not belong in a URL; use the environment or " +
			"~/.aws/credentials")
	case u.Scheme != "s3":
		err = errors.New("write s3://BUCKET/PREFIX")
	default:
		err = c.Validate()
	}
	if err != nil {
		return Config{}, fmt.Errorf("origin s3://%s%s: %w", u.Host, u.Path, err)
	}
	return c, nil
}

// Validate says what is wrong with the configuration.
func (c Config) Validate() error {
	if c.Bucket == "" {
		return errors.New("no bucket is named; write s3://BUCKET/PREFIX")
	}
	if c.Endpoint != "" {
		if _, err := parseEndpoint(c.Endpoint); err != nil {
			return err
		}
	}
	return nil
}

func parseEndpoint(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" ||
		u.User != nil || u.RawQuery != "" || strings.Trim(u.Path, "/") != "" {
		return nil, errors.New("the endpoint must be http://HOST[:PORT] or https://HOST[:PORT], " +
			"without path or credentials")
	}
	return u, nil
}

// bucket is the origin: one bucket, one prefix.
type bucket struct {
	config    Config
	prefix    string // "" or "prefix/"
	region    string
	scheme    string
	host      string
	basePath  string // "/BUCKET/prefix/" or "/prefix/", as sent
	transport *http.Transport
	lister    *s3.Client
	secrets   *secrets // nil: anonymous
	closed    atomic.Bool
}

// New opens the bucket that c names. It makes no request: the first one is the caller's.
func New(ctx context.Context, c Config) (origin.Origin, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("origin s3://%s: %w", c.Bucket, err)
	}
	load := func(ctx context.Context) (aws.Config, error) {
		// The SDK would write its own lines to standard error; what matters comes as an error.
		options := []func(*config.LoadOptions) error{config.WithRegion(c.Region),
			config.WithLogger(logging.Nop{})}
		if c.Profile != "" {
			options = append(options, config.WithSharedConfigProfile(c.Profile))
		}
		return config.LoadDefaultConfig(ctx, options...)
	}
	cfg, err := load(ctx)
	if err != nil {
		return nil, fmt.Errorf("origin s3://%s: read AWS configuration: %w", c.Bucket, err)
	}
	b := &bucket{config: c, region: cfg.Region, transport: newTransport(c.MaxIdleConns)}
	if b.region == "" {
		b.region = "us-east-1"
	}
	if c.Prefix != "" {
		b.prefix = strings.Trim(c.Prefix, "/") + "/"
	}
	if !c.Anonymous {
		b.secrets = newSecrets(cfg.Credentials, func(ctx context.Context) (
			aws.CredentialsProvider, error) {
			fresh, err := load(ctx)
			return fresh.Credentials, err
		})
	}
	b.lister = s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.Region = b.region
		o.Credentials = aws.AnonymousCredentials{}
		if b.secrets != nil {
			o.Credentials, o.HTTPSignerV4 = b.secrets, b.secrets
		}
		o.HTTPClient = &http.Client{Transport: b.transport}
		o.UsePathStyle = c.PathStyle
		if c.Endpoint != "" {
			o.BaseEndpoint = aws.String(c.Endpoint)
		}
	})
	if err := b.place(b.lister.Options().BaseEndpoint); err != nil {
		return nil, fmt.Errorf("origin s3://%s: %w", c.Bucket, err)
	}
	return b, nil
}

// place decides where GET requests go.
func (b *bucket) place(endpoint *string) error {
	at := &url.URL{Scheme: "https", Host: "s3." + b.region + ".amazonaws.com"}
	if endpoint != nil {
		var err error
		if at, err = parseEndpoint(*endpoint); err != nil {
			return err
		}
	}
	b.scheme, b.host = at.Scheme, at.Host
	// A certificate for *.HOST does not cover a bucket with a dot in its name.
	if b.config.PathStyle || strings.Contains(b.config.Bucket, ".") {
		b.basePath = "/" + b.config.Bucket + "/" + b.prefix
	} else {
		b.host = b.config.Bucket + "." + b.host
		b.basePath = "/" + b.prefix
	}
	return nil
}

func newTransport(idle int) *http.Transport {
	if idle == 0 {
		idle = 512
	}
	var http1 http.Protocols
	http1.SetHTTP1(true) // one stream per connection: HTTP/2 would share one window among all
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dialer.DialContext,
		Protocols:             &http1,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: time.Minute,
		IdleConnTimeout:       90 * time.Second,
		MaxIdleConnsPerHost:   idle,
		DisableCompression:    true, // samples are stored as they are wanted
		ReadBufferSize:        16 << 10,
	}
}

// URL names the bucket, the prefix and the endpoint, none of which is a secret.
func (b *bucket) URL() string {
	u := url.URL{Scheme: "s3", Host: b.config.Bucket, Path: "/" + strings.TrimSuffix(b.prefix, "/")}
	if b.config.Endpoint != "" {
		u.RawQuery = url.Values{"endpoint": {b.config.Endpoint}}.Encode()
	}
	return u.String()
}

// Close drops the idle connections; reads in flight end by themselves.
func (b *bucket) Close() error {
	b.closed.Store(true)
	b.transport.CloseIdleConnections()
	return nil
}
