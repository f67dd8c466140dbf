package s3

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// reloadPause bounds how often refused credentials are read again: a wrong secret must not become
// a storm of requests to a metadata service.
const reloadPause = time.Second

// secrets is a provider of credentials that can be replaced while in use. The SDK renews what has
// a date of expiry; a rewritten file or a rotated key has none, and shows only as a refusal.
type secrets struct {
	reload func(context.Context) (aws.CredentialsProvider, error)

	mu       sync.Mutex
	provider aws.CredentialsProvider // guarded by mu
	signer   *v4.Signer              // guarded by mu
	reloaded time.Time               // guarded by mu
}

func newSecrets(provider aws.CredentialsProvider,
	reload func(context.Context) (aws.CredentialsProvider, error)) *secrets {
	return &secrets{provider: provider, signer: newSigner(), reload: reload}
}

func newSigner() *v4.Signer {
	return v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
}

// SignHTTP signs with the signer that belongs to the current credentials.
func (s *secrets) SignHTTP(ctx context.Context, credentials aws.Credentials, r *http.Request,
	payloadHash, service, region string, at time.Time, options ...func(*v4.SignerOptions)) error {
	s.mu.Lock()
	signer := s.signer
	s.mu.Unlock()
	return signer.SignHTTP(ctx, credentials, r, payloadHash, service, region, at, options...)
}

// Retrieve returns the credentials to sign with now.
func (s *secrets) Retrieve(ctx context.Context) (aws.Credentials, error) {
	s.mu.Lock()
	provider := s.provider
	s.mu.Unlock()
	return provider.Retrieve(ctx)
}

// renew reads the credentials again after refused ones, and says whether there are others now.
func (s *secrets) renew(ctx context.Context, refused aws.Credentials) bool {
	if current, err := s.Retrieve(ctx); err == nil && !same(current, refused) {
		return true // another read has renewed them already
	}
	s.mu.Lock()
	if time.Since(s.reloaded) < reloadPause {
		s.mu.Unlock()
		return false
	}
	s.reloaded = time.Now()
	s.mu.Unlock()
	provider, err := s.reload(ctx)
	if err != nil {
		return false
	}
	fresh, err := provider.Retrieve(ctx)
	if err != nil || same(fresh, refused) {
		return false
	}
	s.mu.Lock()
	// A signer keeps keys derived from a secret by the name of its access key alone, so a new
	// secret under an old name needs a new signer.
	s.provider, s.signer = provider, newSigner()
	s.mu.Unlock()
	return true
}

func same(a, b aws.Credentials) bool {
	return a.AccessKeyID == b.AccessKeyID && a.SecretAccessKey == b.SecretAccessKey &&
		a.SessionToken == b.SessionToken
}
