"""`make docs`: the pages of `docs/` as a static site with search, in `build/site`.

The pages are written for GitHub, and the site has no second copy of a text. The site differs from the folder in these points:

- `generated`: writes pages from code into `build/site-pages`. It runs in the project's environment.
- `markdown`: changes the Markdown of GitHub into the dialect of MkDocs, and finds links that leave `docs/`.
- `hooks`: adds the README, the files outside of `docs/` that pages link, and the generated pages. MkDocs calls it in an
  environment with only the packages of `tools/docs.lock`.

`mkdocs.yml` has the navigation. Every link and heading is checked (`--strict`).
"""
