package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"belady/internal/core/dataset"
	"belady/internal/store/origin"
)

const (
	listers = 16 // pages asked for at once
	// splitDepth is how many levels of folders are listed apart from each other. Deeper ones come
	// as one flat listing: a folder per sample must not cost a request per sample.
	splitDepth = 2
)

// folder is a prefix to list: apart from its sub-folders while they are worth a request each.
type folder struct {
	prefix string
	depth  int
}

// List asks for the folders of the first levels in parallel. The SDK retries single pages.
func (b *bucket) List(ctx context.Context, fn func([]dataset.Object) error) error {
	if b.closed.Load() {
		return fmt.Errorf("origin %s is closed", b.URL())
	}
	return origin.Walk(ctx, listers, folder{prefix: b.prefix}, b.listFolder, fn)
}

func (b *bucket) listFolder(ctx context.Context, w *origin.Walker[folder], f folder) error {
	in := &s3.ListObjectsV2Input{
		Bucket:       aws.String(b.config.Bucket),
		Prefix:       aws.String(f.prefix),
		EncodingType: types.EncodingTypeUrl, // XML cannot carry every byte a key may hold
	}
	if f.depth < splitDepth {
		in.Delimiter = aws.String("/")
	}
	for {
		page, err := b.page(ctx, in)
		if err != nil {
			return err
		}
		batch, folders, err := b.decode(page)
		if err != nil {
			return err
		}
		if err := w.Emit(ctx, batch); err != nil {
			return err
		}
		for _, prefix := range folders {
			w.Push(folder{prefix: prefix, depth: f.depth + 1})
		}
		if !aws.ToBool(page.IsTruncated) || page.NextContinuationToken == nil {
			return nil
		}
		in.ContinuationToken = page.NextContinuationToken
	}
}

// page asks for one page, and once more with other credentials if these are refused.
func (b *bucket) page(ctx context.Context, in *s3.ListObjectsV2Input) (
	*s3.ListObjectsV2Output, error) {
	for attempt := 0; ; attempt++ {
		var used aws.Credentials
		if b.secrets != nil {
			used, _ = b.secrets.Retrieve(ctx) // a failure shows again, and better, in the request
		}
		page, err := b.lister.ListObjectsV2(ctx, in)
		if err == nil {
			return page, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		err = b.listError(err, aws.ToString(in.Prefix))
		if attempt > 0 || b.secrets == nil || !errors.Is(err, origin.ErrDenied) ||
			!b.secrets.renew(ctx, used) {
			return nil, err
		}
	}
}

// decode turns a page into objects named relative to the prefix, and the folders below it.
func (b *bucket) decode(page *s3.ListObjectsV2Output) ([]dataset.Object, []string, error) {
	text := func(s *string) (string, error) {
		if page.EncodingType != types.EncodingTypeUrl {
			return aws.ToString(s), nil
		}
		decoded, err := url.QueryUnescape(aws.ToString(s))
		if err != nil {
			return "", fmt.Errorf("list %s: key %q does not decode: %w", b.URL(), aws.ToString(s), err)
		}
		return decoded, nil
	}
	batch := make([]dataset.Object, 0, len(page.Contents))
	for i := range page.Contents {
		object := &page.Contents[i]
		key, err := text(object.Key)
		if err != nil {
			return nil, nil, err
		}
		name, size := strings.TrimPrefix(key, b.prefix), aws.ToInt64(object.Size)
		if name == "" || (size == 0 && strings.HasSuffix(name, "/")) {
			continue // a folder's own marker, not a sample
		}
		batch = append(batch,
			dataset.Object{Name: name, Size: size, Version: versionOf(aws.ToString(object.ETag))})
	}
	folders := make([]string, 0, len(page.CommonPrefixes))
	for i := range page.CommonPrefixes {
		folder, err := text(page.CommonPrefixes[i].Prefix)
		if err != nil {
			return nil, nil, err
		}
		folders = append(folders, folder)
	}
	return batch, folders, nil
}

// listError names the status and code of an SDK error and drops the rest of its text.
func (b *bucket) listError(err error, prefix string) error {
	var answer interface{ HTTPStatusCode() int }
	var api interface{ ErrorCode() string }
	code := ""
	if errors.As(err, &api) {
		code = api.ErrorCode()
	}
	if errors.As(err, &answer) && answer.HTTPStatusCode() > 0 {
		return fmt.Errorf("list: %w", b.refusal(answer.HTTPStatusCode(), code, http.Header{}, prefix))
	}
	return fmt.Errorf("%w: list %q in %s: %w", origin.ErrUnavailable, prefix, b.URL(), err)
}
