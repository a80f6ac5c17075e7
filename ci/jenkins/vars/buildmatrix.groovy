// A step of a shared library: docs/ci/jenkins.md.
//     buildmatrix(version: '0.1.0', args: 'requirements.in --backend cpu')
def call(Map config) {
    withEnv([
        "TOOL_VERSION=${config.version}",
        "TOOL_EXTRAS=${config.extras ?: ''}",
        "TOOL_COMMAND=${config.command ?: 'audit'}",
        "TOOL_ARGS=${config.args ?: ''}",
        "BUILDMATRIX_CACHE=${config.cache ?: env.WORKSPACE_TMP + '/buildmatrix'}",
        "UV_CACHE_DIR=${env.WORKSPACE_TMP}/uv",
        "HOME=${env.WORKSPACE_TMP}",
    ]) {
        try {
            // Single quotes: the shell reads the values, and no script is made of them.
            sh '''#!/bin/sh -e
                set -f
                rm -rf buildmatrix-report && mkdir buildmatrix-report
                uvx --no-config --from "buildmatrix[$TOOL_EXTRAS]==$TOOL_VERSION" buildmatrix \\
                  --no-progress "$TOOL_COMMAND" $TOOL_ARGS \\
                  --format table --format json=buildmatrix-report/report.json \\
                  --format html=buildmatrix-report/report.html \\
                  --format junit=buildmatrix-report/junit.xml \\
                  --format sarif=buildmatrix-report/report.sarif
            '''
        } finally {
            // There is none where the command did not begin; its exit code has failed the build then.
            junit testResults: 'buildmatrix-report/junit.xml', allowEmptyResults: true
            archiveArtifacts artifacts: 'buildmatrix-report/*', allowEmptyArchive: true
        }
    }
}
