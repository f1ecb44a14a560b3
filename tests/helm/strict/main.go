// Reads objects of Kubernetes from standard input into their types. Refuses unknown kinds and unknown fields.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Returns an empty object of the kind that the text names.
func object(text []byte) (any, error) {
	var head struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal(text, &head); err != nil {
		return nil, err
	}
	switch head.APIVersion + "/" + head.Kind {
	case "v1/ConfigMap":
		return &core.ConfigMap{}, nil
	case "v1/Service":
		return &core.Service{}, nil
	case "apps/v1/StatefulSet":
		return &apps.StatefulSet{}, nil
	}
	return nil, fmt.Errorf("unknown kind: %s %s", head.APIVersion, head.Kind)
}

func read(text string) error {
	into, err := object([]byte(text))
	if err != nil {
		return err
	}
	return yaml.UnmarshalStrict([]byte(text), into)
}

func main() {
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, text := range strings.Split(string(input), "\n---\n") {
		if err := read(strings.TrimPrefix(text, "---\n")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
